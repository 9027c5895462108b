"""Selections within the memory that a process may have. NumPy only."""

from typing import Any, Optional

import numpy as np
from numpy.typing import NDArray

from elastictrainer.errors import UsageError
from elastictrainer.profiler.timings import TensorTimings


def fitting(timings: TensorTimings, memory: float) -> NDArray[Any]:
    """Return (N,) bool: the tensors that a process of so many bytes can train, alone.

    Raises:
        UsageError: there is none, or the profile does not say what a step takes.
    """
    if timings.memory is None:
        raise UsageError(
            "the profile does not say what a step takes of memory: make a new one with et-profile, on a "
            "device that trains on its processor."
        )
    total = np.where(timings.connected, timings.memory.loaded + timings.memory.alone, np.inf)
    if total.min() > memory:
        raise UsageError(
            f"{memory / 1e9:.2f} GB of memory are too little to train any tensor: the cheapest one takes "
            f"{total.min() / 1e9:.2f} GB."
        )
    return np.asarray(total <= memory)


def fits(timings: TensorTimings, mask: NDArray[Any], memory: Optional[float]) -> bool:
    """Return whether a process of so many bytes can train a selection; None: of any."""
    return memory is None or timings.memory is None or timings.memory.total(mask) <= memory


def without_earliest(timings: TensorTimings, mask: NDArray[Any], memory: float) -> NDArray[Any]:
    """Leave out the earliest tensors of a selection until a process that trains the others fits."""
    mask = mask.copy()
    for tensor in timings.order[::-1]:
        if fits(timings, mask, memory):
            break
        mask[tensor] = False
    return mask
