"""The pace of a device: how much slower its steps have become since a run began. NumPy only."""

from collections import deque
from typing import Deque, List

import numpy as np

_STEPS = 20  # whose median counts


class Pace:
    """Compares the latest steps of a run with its first ones, whatever each of them trains."""

    def __init__(self) -> None:
        self._first: List[float] = []
        self._seen = 0  # steps after the first ones
        self._latest: Deque[float] = deque(maxlen=_STEPS)

    def add(self, ms: float, expected: float) -> bool:
        """Take in a step; returns whether `slowdown` may have changed, which is so after every 20 steps.

        Args:
            ms: of the step.
            expected: the time that the profile predicts for it, in any unit that is the same for all steps.
        """
        self._latest.append(ms / expected)
        if len(self._first) < _STEPS:
            self._first.append(ms / expected)
            return False
        self._seen += 1
        return self._seen % _STEPS == 0

    @property
    def slowdown(self) -> float:
        """Return how many times longer the latest steps take than the first ones did, at least 1."""
        if len(self._first) < _STEPS:
            return 1.0
        return max(1.0, float(np.median(self._latest) / np.median(self._first)))
