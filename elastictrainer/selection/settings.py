"""How a run is to select its tensors."""

from dataclasses import dataclass
from typing import Optional

from elastictrainer.errors import UsageError
from elastictrainer.profiler.timings import TensorTimings
from elastictrainer.registry import REPROFILE, SOLVER


@dataclass(frozen=True)
class SelectionSettings:
    """What a scheme that selects needs to know.

    Attributes:
        rho: requested training time over full training's.
        interval: epochs between two selections; the first one is replaced after half an interval. None: see
            `usual_interval`; more in a run too short for so many selections to pay, and in one too short for
            any every tensor trains.
        importance_batches: probe minibatches of a selection.
        solver: "dp" or "milp", see `select`.
        feedback: correct the selector's budget by the times measured in this run.
        reprofile: "auto": renew the profile during the run where measured and predicted times differ by
            more than a tenth for a while, "always": before every selection as well, "never". Full steps of
            the run make it. Where frozen work is done once there are none after the first selection: "always"
            makes a profile before that one, "auto" none.

    Raises:
        UsageError: an attribute out of range.
    """

    rho: float = 0.5
    interval: Optional[int] = None
    importance_batches: int = 5
    solver: str = "dp"
    feedback: bool = True
    reprofile: str = "auto"

    def __post_init__(self) -> None:
        for name in ("interval", "importance_batches"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} must be at least 1, not {value}.")
        if not 0 < self.rho <= 1:
            raise UsageError(f"rho must be above 0 and at most 1, not {self.rho:g}.")
        SOLVER.check(self.solver)
        REPROFILE.check(self.reprofile)
        if self.reprofile == "always" and not self.feedback:
            raise UsageError(
                "reprofile always needs a run that measured times correct: leave out --deterministic."
            )

    def check_profile(
        self, timings: Optional[TensorTimings], tensors: int, epochs: float = 1.0
    ) -> TensorTimings:
        """`timings`; UsageError where it is no profile of a model with that many tensors, or too slow.

        `epochs` is that of the longest interval that records and replays; 1: none does.
        """
        if timings is None:
            raise UsageError(
                "an elastic scheme needs the model's profile: pass timings, from profile_model or et-profile."
            )
        check_tensors(timings, tensors)
        rho_min = timings.over(epochs).rho_min
        if not rho_min <= self.rho <= 1:
            more = "" if epochs > 1 else " A lower one needs --reuse auto, and longer intervals."
            raise UsageError(
                f"rho {self.rho:g} cannot be had on this device. Valid: {rho_min:.3f} to 1.{more}"
            )
        return timings


def check_tensors(timings: TensorTimings, tensors: int) -> None:
    """UsageError where the profile has another number of tensors."""
    if len(timings) != tensors:
        raise UsageError(f"the profile has {len(timings)} tensors, the model {tensors}: profile this model.")
