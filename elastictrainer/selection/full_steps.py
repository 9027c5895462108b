"""What full steps take, by those measured now and then. NumPy only."""

from typing import Any, List, Optional, Sequence

import numpy as np


def typical_ms(measured: Sequence[float]) -> float:
    """The mean of step times, each counted as three times the median at most.

    A median would leave out the rare long steps that are part of any training; one step during which the
    machine slept would spoil a mean.
    """
    return float(np.minimum(measured, 3 * np.median(measured)).mean())


class FullSteps:
    """Bursts of full steps, and what full training would take at their pace."""

    def __init__(self) -> None:
        self._bursts: List[List[Any]] = []  # [step, ms, ms, ...]

    def begin(self, step: int, times: Sequence[float] = ()) -> None:
        """A burst begins before step number `step`; `times` (ms) of it are known."""
        self._bursts.append([step, *times])

    def add(self, ms: float) -> None:
        """Another full step of the latest burst took `ms`."""
        self._bursts[-1].append(ms)

    def now_ms(self) -> Optional[float]:
        """What a full step takes, by the latest burst; None before the first."""
        measured = self._measured()
        return typical_ms(measured[-1][1:]) if measured else None

    def training_ms(self, steps: int) -> Optional[float]:
        """What the first `steps` steps would have taken, had all been full; None before the first full step.

        The bursts before and after each step tell; where none follows yet, the latest.
        """
        bursts = self._measured()
        if not bursts:
            return None
        at = [burst[0] + len(burst) / 2 for burst in bursts]
        return float(np.interp(np.arange(steps), at, [typical_ms(burst[1:]) for burst in bursts]).sum())

    def _measured(self) -> List[List[Any]]:
        return [burst for burst in self._bursts if len(burst) > 1]
