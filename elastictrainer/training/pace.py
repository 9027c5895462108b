"""The pace of a device: how much slower its steps have become since a run began. No TensorFlow."""

from collections import deque
from typing import Deque, Optional

# Of a block, at least: processes that share a core take turns of up to a tenth of a second.
_STEPS, _SECONDS = 20, 3.0
_BLOCKS = 3  # a device has become slower if it is so in all of them: another process may come and go


class Pace:
    """Compares a run's latest blocks of steps with its first one, whatever each of them trains.

    Attributes:
        slowdown: how many times longer steps take than the first ones did, at least 1.
    """

    def __init__(self) -> None:
        self.slowdown = 1.0
        self._first: Optional[float] = None  # pace of the first block
        self._latest: Deque[float] = deque(maxlen=_BLOCKS)
        self._steps, self._ms, self._expected = 0, 0.0, 0.0  # of the block going on

    def add(self, ms: float, expected: float) -> bool:
        """Take in a step; returns whether `slowdown` may have changed, which is so at the end of a block.

        Args:
            ms: of the step.
            expected: the time that the profile predicts for it, in any unit that is the same for all steps.
        """
        self._steps, self._ms, self._expected = self._steps + 1, self._ms + ms, self._expected + expected
        if self._steps < _STEPS or self._ms < 1e3 * _SECONDS:
            return False
        pace = self._ms / self._expected
        self._steps, self._ms, self._expected = 0, 0.0, 0.0
        if self._first is None:
            self._first = pace
            return False
        self._latest.append(pace)
        if len(self._latest) == _BLOCKS:
            self.slowdown = max(1.0, min(self._latest) / self._first)
        return True
