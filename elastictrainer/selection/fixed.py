"""The policy of a scheme that trains the same tensors from first to last. NumPy only."""

from typing import Any, Callable, Dict, List, Optional

import numpy as np
from numpy.typing import NDArray

from elastictrainer.profiler.timings import TensorTimings
from elastictrainer.selection.plan import Plan
from elastictrainer.selection.policy import Log, Target, no_log


class FixedPolicy:
    """Trains the tensors of one mask; see `Policy`.

    Attributes:
        mask: (N,) bool, in the order of `model.trainable_weights`.
    """

    selects = False
    scores = False

    def __init__(
        self,
        mask: NDArray[np.bool_],
        plan: Plan,
        timings: Optional[TensorTimings] = None,
        at_interval: Optional[Callable[[], Dict[str, Any]]] = None,
        log: Log = no_log,
    ):
        """
        Args:
            mask: (N,) bool: the tensors to train.
            plan: when the intervals begin.
            timings: the model's profile; None: nothing is predicted.
            at_interval: called at the start of every interval but the first; returns figures for the log.
            log: takes the figures, together with the step's number.
        """
        self.mask: Optional[NDArray[np.bool_]] = mask
        self.plan = plan
        self.timings = timings
        self.masks: List[NDArray[np.bool_]] = []
        self.interval = 0
        self._mask, self._at_interval, self._log = mask, at_interval, log

    def begin(self, step: int, target: Target, cached: bool) -> NDArray[np.bool_]:
        """Begin the next interval; the mask never changes."""
        if self._at_interval and self.interval:
            results = self._at_interval()
            if results:
                self._log({"step": step, **results})
        self.interval += 1
        return self._mask

    def without_cache(self, target: float) -> NDArray[np.bool_]:
        """Return the mask, which never changes."""
        return self._mask

    def settle(self, step: int) -> None:
        """Do nothing: the mask never changes."""

    def state(self) -> Dict[str, Any]:
        """Return the number of intervals begun, as JSON values."""
        return {"interval": self.interval}

    def restore(self, state: Dict[str, Any]) -> None:
        """Continue from `state`."""
        self.interval = state["interval"]
