"""The wall-clock time that a whole process may take."""

import functools
import os
import time
from typing import Callable, Optional

_IMPORTED_S = time.monotonic()


def process_age_s() -> float:
    """Return the seconds since this process started; since this was imported where no system tells."""
    started_s = _started_s()
    if started_s is None:
        return time.monotonic() - _IMPORTED_S
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started_s


@functools.lru_cache(maxsize=None)  # every step asks
def _started_s() -> Optional[float]:
    """Return when this process started, in seconds after the system; None where the system does not tell."""
    try:
        with open("/proc/self/stat", encoding="ascii") as file:
            started = float(file.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        time.clock_gettime(time.CLOCK_BOOTTIME)
    except (OSError, ValueError, AttributeError, IndexError):
        return None
    return started


class Deadline:
    """Counts the time of a process, and what has to be left for its end."""

    def __init__(
        self,
        seconds: float,
        reserve_s: Callable[[], float] = lambda: 0.0,
        more_s: float = 0.0,
        age_s: Callable[[], float] = process_age_s,
        check_s: float = 0.0,
    ):
        """
        Args:
            seconds: that the process may take, from its start to its end.
            reserve_s: tells what comes after the last step: evaluation, writing the model, exports.
            more_s: time for an earlier run beyond the time it had taken; 0: the rest of `seconds`.
            age_s: seconds since the process started.
            check_s: expected time of evaluating a solved head.
        """
        self.seconds, self.reserve_s = seconds + more_s, reserve_s  # until `resume` knows what was spent
        self.before_s = 0.0  # what an interrupted run had taken
        self.slowdown = 1.0  # of the device, since `reserve_s` was measured; see `Pace`
        self.lost_s = 0.0  # in which the machine slept: they count for nothing
        self._more_s, self._age_s = more_s, age_s
        self.check_s = check_s

    @property
    def extends(self) -> bool:
        """Return whether it gives an earlier run more time than that had."""
        return self._more_s > 0

    def resume(self, before_s: float) -> None:
        """Go on with a run that had taken `before_s` seconds."""
        self.before_s = before_s
        if self.extends:
            self.seconds = before_s + self._more_s

    def spent_s(self) -> float:
        """Return the seconds that count so far, those before an interruption included."""
        return self.before_s + self._age_s() - self.lost_s

    def for_training_s(self) -> float:
        """Return the seconds after which the last step must be done."""
        return self.seconds - self.slowdown * self.reserve_s()
