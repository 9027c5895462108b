"""Settings of a run's selections."""

from dataclasses import dataclass
from typing import Optional

from elastictrainer.errors import UsageError
from elastictrainer.profiler.profile import Profile


@dataclass(frozen=True)
class SelectionSettings:
    """Settings of a scheme that selects.

    Attributes:
        rho: requested training time over full training's.
        interval: epochs between two selections; None: see `selection.plan`.
        importance_batches: probe minibatches of a selection.
        deterministic: the profile alone decides what trains; the clock decides nothing.

    Raises:
        UsageError: an attribute out of range.
    """

    rho: float = 0.5
    interval: Optional[int] = None
    importance_batches: int = 5
    deterministic: bool = False

    def __post_init__(self) -> None:
        for name in ("interval", "importance_batches"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} must be at least 1, not {value}.")
        if not 0 < self.rho <= 1:
            raise UsageError(f"rho must be above 0 and at most 1, not {self.rho:g}.")


def check_tensors(profile: Profile, tensors: int) -> None:
    """Refuse, with a UsageError, a profile that has another number of tensors."""
    if len(profile) != tensors:
        raise UsageError(f"the profile has {len(profile)} tensors, the model {tensors}: profile this model.")
