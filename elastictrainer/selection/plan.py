"""How a run that selects divides its time: how many intervals, and how long a step may take. NumPy only."""

from dataclasses import dataclass
from typing import List, Optional

from elastictrainer.errors import UsageError
from elastictrainer.profiler.timings import TensorTimings

PASSES = 6  # over the recorded examples in each interval: fewer reach deeper but train less
RECORDING_SHARE = 0.2  # of the time, for passes over the images that record
_MOST_INTERVALS = 4
PLAIN_INTERVAL = 4  # epochs between two selections where nothing is recorded; the paper has 3 to 4


@dataclass(frozen=True)
class Plan:
    """The intervals of a run. At the start of each tensors are selected, and frozen work is recorded.

    Attributes:
        starts: share of the training time, 0 to 1, at which each interval begins; the first is 0.
        passes: epochs of an interval, by which the time of a step is planned.
        steps_per_epoch: training steps of a pass over the examples.
    """

    starts: List[float]
    passes: float
    steps_per_epoch: int

    def due(self, begun: int, share: float) -> bool:
        """Whether the next interval begins where `share` is used; asked at the start of an epoch.

        An interval whose start falls into the epoch to come begins before or after it, whichever is nearer.
        """
        if begun >= len(self.starts):
            return False
        epoch = 1 / (self.passes * len(self.starts))
        return share >= self.starts[begun] - epoch / 2

    def end(self, interval: int) -> float:
        """The share of the training time at which interval number `interval` (from 0) ends."""
        return self.starts[interval + 1] if interval + 1 < len(self.starts) else 1.0


def plan(
    timings: Optional[TensorTimings],
    steps_per_epoch: int,
    epochs: int,
    full_epochs: float,
    recorded: bool,
    interval: Optional[int] = None,
    by_clock: bool = False,
) -> Plan:
    """Divide a run's time into intervals.

    A pass over the images that records costs about a forward pass, whatever trains. Recordings get a fifth of
    the time: below that, the one selection there is serves the whole run; above it, a new selection knows
    what the first one has learned, and sees the images in another view. Within an interval the time of a step
    follows from the number of passes that are to fit.

    Args:
        timings: the profile; needed where frozen work is recorded.
        steps_per_epoch, epochs: of the run; a run by the clock decides itself how many epochs it makes.
        full_epochs: the run's time, in epochs of full training.
        recorded: whether frozen work is recorded.
        interval: epochs between two selections, as the user asks; None: see above.
        by_clock: the clock ends the run, and `epochs` does not count.
    """
    if not recorded or timings is None:
        count = max(1, round(epochs / (interval or PLAIN_INTERVAL)))
    elif interval:
        count = max(1, round(epochs / interval))
    else:
        passes_paid = RECORDING_SHARE * full_epochs / timings.forward_share
        count = max(1, min(_MOST_INTERVALS, round(passes_paid)))
        if not by_clock:
            count = min(count, max(1, epochs // 2))  # one epoch would record for nothing
    passes = float(PASSES) if by_clock else epochs / count
    return Plan([k / count for k in range(count)], passes, steps_per_epoch)


def require_reachable(rho: float, timings: TensorTimings, recorded: bool) -> None:
    """Refuse a time in which not even the cheapest selection can train.

    Args:
        rho: the time asked for, over full training's.
        timings: the profile.
        recorded: whether frozen work is recorded once and replayed.

    Raises:
        UsageError: `rho` is too low; the message has the lowest.
    """
    lowest = timings.replaying.rho_min if recorded else timings.rho_min
    if not lowest <= rho <= 1:
        more = "" if recorded else " A lower one needs --reuse auto."
        raise UsageError(f"rho {rho:g} cannot be had on this device. Valid: {lowest:.3f} to 1.{more}")
