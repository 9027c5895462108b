"""The plan of a run's time: its intervals, and the time of a step. No TensorFlow."""

from dataclasses import dataclass
from typing import List, Optional

from elastictrainer.errors import UsageError
from elastictrainer.profiler.profile import Profile

FEWEST_EPOCHS, MOST_EPOCHS = 1.0, 12.0  # epochs of an interval: more than the most add nothing
_MOST_INTERVALS = 4
PLAIN_INTERVAL = 4  # epochs between two selections where nothing is cached; the paper has 3 to 4


@dataclass(frozen=True)
class Plan:
    """The intervals of a run. At the start of each tensors are selected, and activations are cached.

    Attributes:
        starts: share of the training time, 0 to 1, at which each interval begins; the first is 0.
        epochs_per_interval: by which the time of a step is planned.
        steps_per_epoch: training steps of a pass over the examples.
    """

    starts: List[float]
    epochs_per_interval: float
    steps_per_epoch: int

    def due(self, begun: int, share: float) -> bool:
        """Return whether the next interval begins where `share` is used; asked at the start of an epoch.

        An interval whose start falls into the epoch to come begins before or after it, whichever is nearer.
        """
        if begun >= len(self.starts):
            return False
        epoch = 1 / (self.epochs_per_interval * len(self.starts))
        return share >= self.starts[begun] - epoch / 2

    def end(self, interval: int) -> float:
        """Return the share of the training time at which interval number `interval` (from 0) ends."""
        return self.starts[interval + 1] if interval + 1 < len(self.starts) else 1.0


def make_plan(
    profile: Optional[Profile],
    steps_per_epoch: int,
    epochs: int,
    full_epochs: float,
    cached: bool,
    interval: Optional[int] = None,
    by_clock: bool = False,
) -> Plan:
    """Divide a run's time into intervals.

    A pass over the images that writes the cache costs about a forward pass, whatever trains. The rule: an
    epoch of cached training takes as long as that pass. Cheaper epochs would reach few tensors: one epoch
    that reaches further is worth more than four cheap ones (docs/study-appendix.md). So the epochs that fit
    into a run are its time over that of a pass; beyond twelve a new interval begins, whose selection knows
    what was learned and whose cache holds the images augmented in another way.

    Args:
        profile: the profile; needed where activations are cached.
        steps_per_epoch, epochs: of the run; a run by the clock decides itself how many epochs it makes.
        full_epochs: the run's time, in epochs of full training.
        cached: whether activations are cached.
        interval: epochs between two selections, as the user asks; None: by the rule above.
        by_clock: the clock ends the run, and `epochs` does not count.
    """
    # An epoch costs about a forward pass, by the rule above: this many fit into the run's time.
    fitting = None if profile is None else full_epochs / profile.forward_share
    if interval or not cached or fitting is None:
        count = max(1, round(epochs / (interval or PLAIN_INTERVAL)))
    else:
        count = max(1, min(_MOST_INTERVALS, round(fitting / MOST_EPOCHS)))
        if not by_clock:
            count = min(count, max(1, epochs // 2))  # one epoch would never read its cache
    if not by_clock:
        epochs_per_interval = epochs / count
    elif fitting is None:
        epochs_per_interval = MOST_EPOCHS
    else:
        epochs_per_interval = min(MOST_EPOCHS, max(FEWEST_EPOCHS, fitting / count))
    return Plan([k / count for k in range(count)], epochs_per_interval, steps_per_epoch)


def require_reachable(rho: float, profile: Profile, cached: bool) -> None:
    """Refuse a time in which not even the cheapest selection can train.

    Args:
        rho: the time asked for, over full training's.
        profile: the profile.
        cached: whether activations are cached and read.

    Raises:
        UsageError: `rho` is too low; the message has the lowest.
    """
    lowest = profile.with_cache.rho_min if cached else profile.rho_min
    if not lowest <= rho <= 1:
        more = "" if cached else " A lower one needs --activation-cache auto."
        raise UsageError(f"rho {rho:g} is not achievable on this device. Valid: {lowest:.3f} to 1.{more}")
