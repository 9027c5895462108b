"""The tensors that train under a scheme which names them once."""

import contextlib
from collections import deque
from typing import Any, Callable, ContextManager, Deque, Dict, List, Optional, Tuple

import numpy as np

from elastictrainer.profiler.timings import TensorTimings
from elastictrainer.selection.budget import typical_ms
from elastictrainer.selection.schemes import Scheme

Log = Callable[[Dict[str, Any]], None]


class FixedTensors:
    """The tensors of a scheme that does not select.

    Attributes:
        mask: (N,) bool, in the order of `model.trainable_weights`.
        timings: the model's profile, or None.
        masks, corrections: of a scheme that selects; none here.
        full_apart_ms: full steps measured apart, where the scheme makes none.
    """

    def __init__(
        self,
        scheme: Scheme,
        model: Any,
        optimizer: Any,
        interval: int,
        timings: Optional[TensorTimings],
        log: Log,
    ):
        """
        Args:
            scheme: names the tensors.
            model, optimizer: what it may work on at every interval.
            interval: in epochs.
            timings: the model's profile; None: nothing is predicted.
            log: takes the figures of an interval.
        """
        self.mask = scheme.mask(model)
        self.timings = timings
        self.masks: List[np.ndarray] = []
        self.corrections = 0
        self.full_apart_ms: List[float] = []
        self._at_interval = lambda: scheme.at_interval(model, optimizer)
        self._interval = interval
        self._log = log
        self._ms: Deque[float] = deque(maxlen=10_000)

    def next_step(self, step: int, epoch: int, batch: int) -> np.ndarray:
        """(N,) bool: what trains in step number `step`, which is number `batch` of its epoch (all from 0)."""
        if epoch and not batch and epoch % self._interval == 0:
            figures = self._at_interval()
            if figures:
                self._log({"step": step, **figures})
        return self.mask

    def stepping(self) -> ContextManager[None]:
        """What a step runs in."""
        return contextlib.nullcontext()

    def took(self, step: int, ms: float, example: Tuple[Any, Any], new: bool) -> None:
        """Step number `step`, on a minibatch like `example`, took `ms`; `new`: its graph was built in it."""
        if self.mask.all() and not new:
            self._ms.append(ms)

    def full_step_ms(self) -> Optional[float]:
        """Of the full steps set apart, else the mean of this run's, which are all full; None before the first."""
        if self.full_apart_ms:
            return typical_ms(self.full_apart_ms)
        return float(np.mean(self._ms)) if self._ms else None

    def full_training_ms(self, steps: int) -> Optional[float]:
        """What the steps of full training would have taken up to step number `steps`."""
        full_ms = self.full_step_ms()
        return full_ms and steps * full_ms

    def state(self) -> Dict[str, Any]:
        """What `restore` needs, as JSON values."""
        return {"full_apart_ms": self.full_apart_ms, "ms": list(self._ms)}

    def restore(self, state: Dict[str, Any], selections: List[Dict[str, Any]]) -> None:
        """Go on from `state`."""
        self.full_apart_ms = list(state["full_apart_ms"])
        self._ms.extend(state["ms"])

    def close(self) -> None:
        """Nothing is held."""
