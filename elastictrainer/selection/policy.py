"""The policy of a run: which tensors train in each interval. No TensorFlow."""

from typing import Any, Callable, Dict, List, Optional

import numpy as np
from numpy.typing import NDArray

from elastictrainer.profiler.timings import TensorTimings
from elastictrainer.selection.plan import Plan

FULL = "full"  # kinds of steps: one that trains every tensor,
PLAIN = "plain"  # a selection, from images to update,
CACHE_WRITE = "recording"  # not a step: a pass over the images that writes the cache,
CACHE_READ = "replay"  # and a cached step, which begins by reading it

Log = Callable[[Dict[str, Any]], None]  # takes the record of a selection or of an interval


class Policy:
    """Decides at the start of each interval which tensors train in it. This one: the same from first to last.

    Attributes:
        plan: when the intervals begin.
        timings: the model's profile; None: nothing is predicted.
        mask: (N,) bool, in the order of `model.trainable_weights`: what trains; None: before the first.
        masks: every selection so far; empty where the scheme does not select.
        interval: number of intervals begun.
        selects: whether the mask may change from interval to interval.
        scores: whether it needs importances, and with them a head that knows something.
    """

    selects = False
    scores = False

    def __init__(
        self,
        mask: Optional[NDArray[np.bool_]],
        plan: Plan,
        timings: Optional[TensorTimings] = None,
        at_interval: Callable[[], Dict[str, Any]] = dict,
        log: Log = lambda record: None,
    ):
        """
        Args:
            mask, plan, timings: see above.
            at_interval: called at the start of every interval but the first; returns figures for the log.
            log: takes the figures, together with the step's number.
        """
        self.mask, self.plan, self.timings = mask, plan, timings
        self.masks: List[NDArray[np.bool_]] = []
        self.interval = 0
        self._at_interval, self._log = at_interval, log

    def score(self) -> None:
        """Score the tensors for the interval to come, where it needs that."""

    def begin(self, step: int, target: float, cached: bool) -> NDArray[np.bool_]:
        """Begin the next interval, before step number `step`; `settle` comes next.

        Args:
            step: steps done.
            target: time of a step over a full one's, 0 to 1.
            cached: the activations of the interval will be cached, and its steps read them.

        Returns:
            (N,) bool: what trains.
        """
        results = self._at_interval() if self.interval else {}
        if results:
            self._log({"step": step, **results})
        self.interval += 1
        assert self.mask is not None
        return self.mask

    def without_cache(self, target: float) -> None:
        """Select again where the interval's activations cannot be cached: steps take longer than planned."""

    def settle(self, step: int) -> None:
        """Log the selection from step number `step` on, once it is known whether the interval is cached."""

    def state(self) -> Dict[str, Any]:
        """Return the state that `restore` needs, as JSON values."""
        return {"interval": self.interval}

    def restore(self, state: Dict[str, Any]) -> None:
        """Continue from `state`, in a policy made with the same arguments."""
        self.interval = state["interval"]
