"""The policy of a scheme that trains the same tensors from first to last. NumPy only."""

import contextlib
from collections import deque
from typing import Any, Callable, ContextManager, Deque, Dict, List, Optional

import numpy as np
from numpy.typing import NDArray

from elastictrainer.profiler.timings import TensorTimings
from elastictrainer.selection.full_steps import typical_ms
from elastictrainer.selection.policy import Log, no_log

_STEPS_KEPT = 10_000  # step times that the mean is made of: 200 kB of a checkpoint at most


class FixedPolicy:
    """Trains the tensors of one mask.

    Attributes:
        mask: (N,) bool, in the order of `model.trainable_weights`.
        timings: the model's profile, or None.
        calibration_ms: times of full steps that were measured for comparison, beside the run, where the
            mask leaves tensors out.
    """

    selects = False
    selections = 0
    corrections = 0

    def __init__(
        self,
        mask: NDArray[np.bool_],
        timings: Optional[TensorTimings] = None,
        at_interval: Optional[Callable[[], Dict[str, Any]]] = None,
        interval: int = 1,
        log: Log = no_log,
        epochs: int = 0,
    ):
        """
        Args:
            mask: (N,) bool: the tensors to train.
            timings: the model's profile; None: nothing is predicted.
            at_interval: called before the first step of every interval but the first; returns figures for the
                log.
            interval: in epochs.
            log: takes the figures, together with the step's number.
            epochs: of the run, where frozen work is to be recorded; 0: it is not.
        """
        self.mask = mask
        self.timings = timings
        self.masks: List[NDArray[np.bool_]] = []
        self.calibration_ms: List[float] = []
        self._at_interval = at_interval
        self._interval = interval
        self._log = log
        self._epochs = 0 if mask.all() else epochs  # where all trains, nothing is frozen
        self.interval = 0
        self.epochs = 1.0
        self._full_ms: Deque[float] = deque(maxlen=_STEPS_KEPT)

    def next_mask(self, step: int, epoch: int, batch: int) -> NDArray[np.bool_]:
        """See `Policy`."""
        if self._at_interval and epoch and not batch and epoch % self._interval == 0:
            figures = self._at_interval()
            if figures:
                self._log({"step": step, **figures})
        if not batch:
            self.interval = epoch // self._interval
            left = self._epochs - self.interval * self._interval
            self.epochs = float(max(1, min(self._interval, left)))
        return self.mask

    def recording_begins(self, trainable: NDArray[np.bool_]) -> None:
        """See `Policy`: the mask never changes."""

    def without_recording(self, step: int) -> NDArray[np.bool_]:
        """See `Policy`."""
        self.epochs = 1.0
        return self.mask

    def stepping(self) -> ContextManager[None]:
        """See `Policy`."""
        return contextlib.nullcontext()

    def step_taken(self, step: int, ms: float, minibatch: Any, compiled: bool, kind: str) -> None:
        """See `Policy`."""
        if self.mask.all() and not compiled:
            self._full_ms.append(ms)

    def full_step_ms(self) -> Optional[float]:
        """By the calibration steps, else by the run's steps if they are full; None without either."""
        if self.calibration_ms:
            return typical_ms(self.calibration_ms)
        return float(np.mean(self._full_ms)) if self._full_ms else None

    def full_training_ms(self, steps: int) -> Optional[float]:
        """See `Policy`."""
        full_ms = self.full_step_ms()
        return None if full_ms is None else steps * full_ms

    def state(self) -> Dict[str, Any]:
        """See `Policy`."""
        return {
            "calibration_ms": list(self.calibration_ms),
            "full_ms": list(self._full_ms),
            "interval": self.interval,
            "epochs": self.epochs,
        }

    def restore(self, state: Dict[str, Any]) -> None:
        """See `Policy`."""
        self.calibration_ms = list(state["calibration_ms"])
        self._full_ms = deque(state["full_ms"], maxlen=_STEPS_KEPT)
        self.interval, self.epochs = state["interval"], state["epochs"]

    def close(self) -> None:
        """Nothing is held."""
