"""A forecast of the parts of a run by the clock, before it trains; an error if the time is too short."""

from dataclasses import dataclass
from typing import List, Optional

from elastictrainer.errors import UsageError
from elastictrainer.profiler.profile import Profile
from elastictrainer.selection.plan import FEWEST_EPOCHS, Plan
from elastictrainer.training.head_pass import HeadPass
from elastictrainer.training.state import RunState

# What a selection takes, in full steps: to build its graphs; to score the tensors as well. Measured with
# MobileNetV2 at 224x224; smaller networks take more of their own steps.
GRAPH_STEPS, _SCORING_STEPS = 15.0, 35.0


@dataclass(frozen=True)
class RunShape:
    """The parts of a run that its time is divided among.

    Attributes:
        profile: the model's profile.
        plan: the run's intervals.
        cached: whether activations are cached.
        head: solves the head; None: it stays.
    """

    profile: Profile
    plan: Plan
    cached: bool
    head: Optional[HeadPass]


@dataclass(frozen=True)
class Forecast:
    """Seconds of a run's parts.

    Attributes:
        budget_s: of the run.
        spent_s: counted so far.
        passes_s: the passes over the images that give features and write the cache, and solving the head.
        selections_s: scoring, choosing, and building graphs.
        least_training_s: training that takes less is not worth what comes before it.
        ending_s: of the work after the last step that counts: evaluation, writing the model.
        intervals: of the plan.
        check_s: evaluating the solved head.
    """

    budget_s: float
    spent_s: float
    passes_s: float
    selections_s: float
    least_training_s: float
    ending_s: float
    intervals: int
    check_s: float

    @property
    def training_s(self) -> float:
        """Return seconds that are left for training."""
        before_s = self.spent_s + self.passes_s + self.check_s + self.selections_s
        return self.budget_s - before_s - self.ending_s

    @property
    def least_s(self) -> float:
        """Return the least budget that makes sense."""
        return self.budget_s - self.training_s + self.least_training_s

    def lines(self) -> List[str]:
        """Return the plan, a line for each part."""
        intervals = "one interval" if self.intervals == 1 else f"{self.intervals} intervals"
        return [
            f"plan: {self.budget_s:.0f} s, of these {self.spent_s:.0f} s so far",
            f"  head and cache      {self.passes_s:6.0f} s"
            + (f", and {self.check_s:.0f} s to evaluate the head" if self.check_s else ""),
            f"  selection           {self.selections_s:6.0f} s",
            f"  training            {max(0.0, self.training_s):6.0f} s, in {intervals}"
            + (f"; then {self.ending_s:.0f} s to evaluate and write the model" if self.ending_s else ""),
        ]

    @property
    def enough(self) -> bool:
        """Return whether the time for training is worth what comes before it."""
        return self.training_s >= self.least_training_s

    def require_enough(self) -> None:
        """Refuse a budget in which nothing could be trained; the message has the least one.

        Raises:
            UsageError: it is too small.
        """
        if not self.enough:
            raise UsageError(
                f"{self.budget_s:.0f} s are too little: {self.spent_s:.0f} s were spent on loading and "
                f"profile, the images take about {self.passes_s:.0f} s, a selection {self.selections_s:.0f} "
                f"s, evaluating and writing {self.check_s + self.ending_s:.0f} s. "
                f"Give it --time {1.1 * self.least_s:.0f}s or more."
            )


def forecast(
    shape: RunShape, state: RunState, selects: bool, scores: bool, seconds: Optional[float] = None
) -> Forecast:
    """Forecast a run by the clock as it stands.

    Args:
        shape: its parts.
        state: of the run.
        selects: whether tensors are selected at every interval.
        scores: whether they are scored for that.
        seconds: after which the last step is done; None: the deadline tells.
    """
    profile, plan, head, deadline = shape.profile, shape.plan, shape.head, state.deadline
    if seconds is None:
        assert deadline is not None
        seconds = deadline.for_training_s()
    ending_s = 0.0 if deadline is None else deadline.reserve_s()
    full_s = 1e-3 * (state.full_step_ms() or profile.full_ms)
    forward_s = full_s * profile.forward_share

    if selects and shape.cached:
        passes = len(plan.starts)
    else:
        passes = 0 if head is None else 1
    passes_s = passes * plan.steps_per_epoch * forward_s
    if head is not None:
        passes_s += head.solving_s
    if head is not None and scores:
        passes_s += head.sampled * forward_s

    steps_per_selection = GRAPH_STEPS if selects else 0.0
    if scores:
        steps_per_selection += _SCORING_STEPS

    # An epoch of the cheapest selection, in epochs of full training. After a solved head that gains nothing:
    # the head is worth its time alone, and the least is an epoch as the plan has it.
    if not selects:
        least_epochs = 1.0 if head is None else 0.0
    elif not shape.cached:
        least_epochs = profile.rho_min
    else:
        least_epochs = profile.with_cache.rho_min
        if head is not None:
            least_epochs = FEWEST_EPOCHS * max(least_epochs, profile.forward_share)
    return Forecast(
        budget_s=seconds + ending_s,
        spent_s=state.spent_s(),
        passes_s=passes_s,
        selections_s=len(plan.starts) * steps_per_selection * full_s,
        least_training_s=plan.steps_per_epoch * full_s * least_epochs,
        ending_s=ending_s,
        intervals=len(plan.starts),
        check_s=deadline.check_s if deadline is not None and head is not None else 0.0,
    )
