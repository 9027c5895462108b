"""The policy of a run: which tensors train in each interval. No TensorFlow."""

from typing import Any, Callable, Dict, List, Optional, Protocol

import numpy as np
from numpy.typing import NDArray

from elastictrainer.profiler.timings import TensorTimings
from elastictrainer.selection.plan import Plan

FULL = "full"  # kinds of steps: one that trains every tensor,
PLAIN = "plain"  # a selection, from images to update,
CACHE_WRITE = "recording"  # not a step: a pass over the images that writes the cache,
CACHE_READ = "replay"  # and a cached step, which begins by reading it

Log = Callable[[Dict[str, Any]], None]  # takes the record of a selection or of an interval
Score = Callable[[], NDArray[np.float64]]  # makes the (N,) importances of the tensors as they are now
Target = Callable[[], float]  # the time that a step may take now, over a full one's, 0 to 1


def no_log(record: Dict[str, Any]) -> None:
    """Drop the record."""


class Policy(Protocol):
    """Decides at the start of each interval which tensors train in it.

    Attributes:
        plan: when the intervals begin.
        timings: the model's profile; None: nothing is predicted.
        mask: (N,) bool, in the order of `model.trainable_weights`: what trains; None: before the first.
        masks: every selection so far; empty where the scheme does not select.
        interval: number of intervals begun.
        selects: whether the mask may change from interval to interval.
        scores: whether `begin` needs importances, and with them a head that knows something.
    """

    plan: Plan
    timings: Optional[TensorTimings]
    mask: Optional[NDArray[np.bool_]]
    masks: List[NDArray[np.bool_]]
    interval: int
    selects: bool
    scores: bool

    def begin(self, step: int, target: Target, cached: bool) -> NDArray[np.bool_]:
        """Begin the next interval, before step number `step`; `settle` comes next.

        Args:
            step: steps done.
            target: asked when the tensors are scored, which takes time.
            cached: the activations of the interval will be cached, and its steps read them.

        Returns:
            (N,) bool: what trains.
        """

    def without_cache(self, target: float) -> NDArray[np.bool_]:
        """Select again where the interval's activations cannot be cached; arguments as of `begin`."""

    def settle(self, step: int) -> None:
        """Log the selection from step number `step` on, once it is known whether the interval is cached."""

    def state(self) -> Dict[str, Any]:
        """Return the state that `restore` needs, as JSON values."""

    def restore(self, state: Dict[str, Any]) -> None:
        """Continue from `state`, in a policy made with the same arguments."""
