"""Tensor timing profiler: capture (run and trace), xplane (op times), attribution (op to tensor), timings (the model)."""
