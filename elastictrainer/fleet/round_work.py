"""What a client does within the time of a round, by its profile: how many steps of which time. NumPy only."""

from dataclasses import dataclass
from typing import Optional

import numpy as np
from numpy.typing import NDArray

from elastictrainer.profiler.profile import Profile

RULES = ("elastic", "full", "drop")
_MOST_SCORING = 1 / 3  # of a round


@dataclass(frozen=True)
class RoundWork:
    """A client's work in a round."""

    rho: Optional[float]  # a step's time over a full step's; None: all tensors train, and none is scored
    steps: int  # minibatches to train on; 0: the client sits the round out
    # Minibatches that tensors are scored on; 0: the late layers train, as deep as the time allows, or an
    # earlier selection holds.
    scored: int = 0


@dataclass(frozen=True)
class Device:
    """A client's device, by its profile; in a simulation each step counts `slow_down` times."""

    profile: Profile
    slow_down: float = 1.0

    def seconds(self, steps: float, mask: NDArray[np.bool_]) -> float:
        """Return how long so many steps under `mask` (N,) bool take."""
        return 1e-3 * self.slow_down * steps * self.profile.step_time(mask)

    def full_seconds(self, steps: float) -> float:
        return 1e-3 * self.slow_down * steps * self.profile.full_ms

    def scoring_seconds(self, minibatches: float) -> float:
        """Return how long scoring takes: each minibatch a full step and another gradient, two at most."""
        return self.full_seconds(2 * minibatches)

    def work(self, rule: str, seconds: float, steps: int, least_rho: float, scored: int) -> RoundWork:
        """Return what the client does in a round of `seconds`, with `steps` minibatches of all its images.

        By the rule "elastic" it passes over all its images where a step can be made short enough for that; no
        step is shorter than `least_rho` (0 to 1) of a full one, and in the time that is left fewer images are
        trained on. "full": full steps on all images, however long that takes; "drop": the same, but not at
        all where that exceeds the round. Tensors are scored on `scored` minibatches where some are to be left
        out and the time allows; 0: an earlier selection holds.
        """
        full_s = self.full_seconds(steps)
        if rule == "full" or full_s <= seconds:
            return RoundWork(None, steps)
        if rule == "drop":
            return RoundWork(None, 0)
        lowest = max(least_rho, self.profile.rho_min)
        if lowest >= 1:
            return RoundWork(None, int(steps * seconds / full_s))
        scored = min(scored, int(_MOST_SCORING * seconds / self.scoring_seconds(1)))
        share = (seconds - self.scoring_seconds(scored)) / full_s
        rho = float(np.clip(share, lowest, 1.0))
        return RoundWork(rho, min(steps, int(steps * share / rho)), scored)
