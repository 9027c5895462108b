"""The progress of a run: counters and sums over its steps."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Sequence

import numpy as np

_RECENT = 10_000  # step times that the run's median is of: enough for it, and a checkpoint stays small


def typical_ms(measured: Sequence[float]) -> float:
    """Return the mean of step times, each counted as three times the median at most.

    A median would leave out the rare long steps that are part of any training; one step during which the
    machine slept would spoil a mean.
    """
    return float(np.minimum(measured, 3 * np.median(measured)).mean())


@dataclass
class Progress:
    """The progress of a run between two steps. JSON values only.

    Attributes:
        epoch: epochs finished, their evaluation included.
        batch: minibatches done of the epoch going on.
        step: training steps done.
        loss_sum: of the epoch going on.
        epoch_ms: step times of the epoch going on; without the first step of each compiled graph, as below.
        recent_ms: the latest step times of the run, 10,000 at most.
        predicted_ratio: sum over the steps done of what the profile predicts, over a full step.
        flops: floating point operations of the steps done, as far as the profile counts them.
        timed_full_ms: times of full steps measured for comparison.
        cache_hits: steps done that read from it.
        cache_bytes: of the largest cache.
        stopped: why the run ends before its last epoch; None: it does not.
        start_loss: mean loss of the training images under the solved head, in nats; None: it was not solved.
        cache_origin: how the interval's cache began, as JSON values; None: there is none.
        trained_s, epochs_flops: training seconds and `flops` up to the end of the latest finished epoch.
    """

    epoch: int = 0
    batch: int = 0
    step: int = 0
    loss_sum: float = 0.0
    epoch_ms: List[float] = field(default_factory=list)
    recent_ms: List[float] = field(default_factory=list)
    predicted_ratio: float = 0.0
    flops: float = 0.0
    timed_full_ms: List[float] = field(default_factory=list)
    cache_hits: int = 0
    cache_bytes: int = 0
    trained_s: float = 0.0
    epochs_flops: float = 0.0
    stopped: Optional[str] = None
    start_loss: Optional[float] = None
    cache_origin: Optional[Dict[str, Any]] = None

    def step_took(self, ms: float) -> None:
        """Add a step's time to the medians."""
        self.epoch_ms.append(ms)
        self.recent_ms.append(ms)
        if len(self.recent_ms) > 2 * _RECENT:
            del self.recent_ms[:_RECENT]

    def step_done(self, loss: float) -> None:
        """Count one more minibatch."""
        self.loss_sum += loss
        self.batch += 1
        self.step += 1

    def epoch_done(self, trained_s: float) -> None:
        """Count one more epoch, after `trained_s` seconds of training."""
        self.epoch += 1
        self.batch = 0
        self.loss_sum = 0.0
        self.epoch_ms = []
        self.trained_s = trained_s
        self.epochs_flops = self.flops

    def to_json(self) -> Dict[str, Any]:
        """Return the argument of `restore`."""
        return {**dataclasses.asdict(self), "recent_ms": self.recent_ms[-_RECENT:]}

    def restore(self, values: Dict[str, Any]) -> None:
        """Go on from what `to_json` gave; a checkpoint of another version may hold more, or less."""
        for name in values.keys() & vars(self).keys():
            setattr(self, name, values[name])
