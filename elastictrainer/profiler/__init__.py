"""Tensor timing profiler: how long each tensor's work takes on this device.

capture (run and trace a step) -> xplane (op times) -> attribution (op to tensors) -> charging (cost groups)
-> profile.
"""
