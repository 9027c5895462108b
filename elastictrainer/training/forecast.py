"""What the parts of a run by the clock will take: said before it trains, or why there is too little time."""

from dataclasses import dataclass
from typing import List, Optional

from elastictrainer.errors import UsageError
from elastictrainer.profiler.timings import TensorTimings
from elastictrainer.selection.plan import Plan

_SELECTION_STEPS = 50.0  # that a selection takes, in full steps: scores, and graphs to build
_LEAST_EPOCHS = 1.0  # of training after the head: below that nothing but the head is worth its time


@dataclass(frozen=True)
class Forecast:
    """Seconds of a run's parts.

    Attributes:
        budget_s: of the run.
        spent_s: counted so far.
        passes_s: the passes over the images that give features and record.
        selections_s: scoring, choosing, and building graphs.
        cheapest_epoch_s: an epoch of the cheapest selection.
        ending_s: what comes after the last step and counts: evaluation, writing the model.
        intervals: of the plan.
        check_s: evaluating the solved head.
    """

    budget_s: float
    spent_s: float
    passes_s: float
    selections_s: float
    cheapest_epoch_s: float
    ending_s: float
    intervals: int
    check_s: float

    @property
    def training_s(self) -> float:
        """Seconds that are left for training."""
        before_s = self.spent_s + self.passes_s + self.check_s + self.selections_s
        return self.budget_s - before_s - self.ending_s

    @property
    def least_s(self) -> float:
        """The least budget that makes sense."""
        return self.budget_s - self.training_s + _LEAST_EPOCHS * self.cheapest_epoch_s

    def lines(self) -> List[str]:
        """Return the plan, a line for each part."""
        intervals = "one interval" if self.intervals == 1 else f"{self.intervals} intervals"
        return [
            f"plan: {self.budget_s:.0f} s, of these {self.spent_s:.0f} s so far",
            f"  head and recording  {self.passes_s:6.0f} s"
            + (f", and {self.check_s:.0f} s to evaluate the head" if self.check_s else ""),
            f"  selection           {self.selections_s:6.0f} s",
            f"  training            {max(0.0, self.training_s):6.0f} s, in {intervals}"
            + (f"; then {self.ending_s:.0f} s to evaluate and write the model" if self.ending_s else ""),
        ]

    def require_enough(self) -> None:
        """Refuse a budget in which nothing could be trained; the message has the least one.

        Raises:
            UsageError: it is too small.
        """
        if self.training_s < _LEAST_EPOCHS * self.cheapest_epoch_s:
            raise UsageError(
                f"{self.budget_s:.0f} s are too little: {self.spent_s:.0f} s were spent on loading and "
                f"profile, the images take about {self.passes_s:.0f} s, a selection {self.selections_s:.0f} "
                f"s, evaluating and writing {self.check_s + self.ending_s:.0f} s. "
                f"Give it --time {1.1 * self.least_s:.0f}s or more."
            )


def forecast(
    timings: Optional[TensorTimings],
    plan: Plan,
    full_ms: Optional[float],
    recorded: bool,
    selects: bool,
    head: bool,
    budget_s: float,
    spent_s: float,
    ending_s: float = 0.0,
    check_s: float = 0.0,
) -> Optional[Forecast]:
    """Estimate the parts of a run by the clock; None without a profile.

    Args:
        timings: the profile.
        plan: the run's intervals.
        full_ms: what a full step takes now; None: what the profile says.
        recorded, selects, head: whether frozen work is recorded, tensors are selected, the head is solved.
        budget_s, spent_s, ending_s, check_s: see `Forecast`.
    """
    if timings is None:
        return None
    full_s = 1e-3 * (full_ms or timings.full_ms)
    intervals = len(plan.starts)
    pass_s = plan.steps_per_epoch * full_s * timings.forward_share
    passes = intervals if recorded and selects else float(head)
    cheapest = timings.replaying if recorded and selects else timings
    ratio = cheapest.rho_min if selects else 1.0
    return Forecast(
        budget_s,
        spent_s,
        passes * pass_s,
        intervals * _SELECTION_STEPS * full_s * selects,
        plan.steps_per_epoch * full_s * ratio,
        ending_s,
        intervals,
        check_s,
    )
