"""Tensor timing profiler: how long each tensor's work takes on this device.

`profile_model` runs and traces full steps and makes the profile, in this order:

xplane: read the trace, op times. attribution: which tensors an op is for. charging: op times to cost groups.
calibration: the profile corrected by a few selections that are timed, and compared with others.
profile: the time model, and its file. cost_groups: what it is made of.

memory: what the step keeps resident.
"""
