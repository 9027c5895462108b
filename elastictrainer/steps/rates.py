"""The learning rate over a run: it follows the share of the run's budget that is used. NumPy only."""

from dataclasses import dataclass

import numpy as np

from elastictrainer.errors import UsageError
from elastictrainer.registry import SCHEDULE

_LOWEST = 0.05  # of the highest rate: where a warm-up begins. At zero the first update would be none.


@dataclass(frozen=True)
class RateSchedule:
    """A learning rate as a function of the share of the budget that is used.

    A run that ends when its time is used up does not know its number of steps, so the rate cannot follow the
    step's number. What matters is that it reaches zero where the run ends (Li et al., Budgeted Training,
    ICLR 2020).

    Attributes:
        highest: the rate after the warm-up.
        shape: "cosine" falls to zero at the end of the budget; "constant" stays.
        warmup: share of the budget in which the rate rises linearly to the highest, 0 to 1.

    Raises:
        UsageError: an unknown shape, a warm-up that leaves nothing.
    """

    highest: float
    shape: str = "cosine"
    warmup: float = 0.0

    def __post_init__(self) -> None:
        SCHEDULE.check(self.shape)
        if not 0 <= self.warmup < 1:
            raise UsageError(f"a warm-up of {self.warmup:g} of the run leaves nothing of it; below 1.")

    def factor(self, share: float) -> float:
        """Return the rate over the highest one, where `share` (0 to 1) of the budget is used."""
        share = min(1.0, max(0.0, share))
        if share < self.warmup:
            return float(_LOWEST + (1 - _LOWEST) * share / self.warmup)
        if self.shape == "constant":
            return 1.0
        return float(0.5 * (1 + np.cos(np.pi * (share - self.warmup) / (1 - self.warmup))))

    def rate(self, share: float) -> float:
        """Return the learning rate where `share` (0 to 1) of the budget is used."""
        return self.highest * self.factor(share)
