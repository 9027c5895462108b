"""Tensor timing profiler: how long each tensor's work takes on this device.

`profile_model` goes from a full step to its profile in this order:

capture: run and trace the step. xplane: read the trace, op times. attribution: which tensors an op is for;
function_bodies: the same inside called functions. charging: op times to cost groups, the profile.
calibration: corrected by a few selections, which `interleaved` times. validation: compared with others.

Memory has the same parts: memory_profile, memory_groups, step_memory. cache_costs are those of the cache.
"""
