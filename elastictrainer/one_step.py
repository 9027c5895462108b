"""A training step, as every loop takes it: decide what trains, fetch the minibatch, run, and time it."""

import contextlib
import time
from dataclasses import dataclass
from typing import Any, Callable, Optional, Tuple, Union

import numpy as np

from elastictrainer.fixed_tensors import FixedTensors
from elastictrainer.selected_tensors import SelectedTensors
from elastictrainer.steps import StepCache
from elastictrainer.stopwatch import Stopwatch

Batch = Tuple[Any, Any]


@dataclass(frozen=True)
class Taken:
    """A step that was taken.

    Attributes:
        mask: (N,) bool: what was trained.
        batch: inputs and labels.
        loss: of the minibatch, before the update.
        ms: wall-clock time, fetching included, deciding not.
        new: the step's graph was built in it, so `ms` is not typical.
    """

    mask: np.ndarray
    batch: Batch
    loss: float
    ms: float
    new: bool


class Stepper:
    """Takes training steps on the tensors that are to train."""

    def __init__(
        self,
        tensors: Union[FixedTensors, SelectedTensors],
        steps: StepCache,
        watch: Stopwatch,
        spec: Optional[Batch] = None,
    ):
        """
        Args:
            tensors: decides what trains.
            steps: the compiled steps.
            watch: its lap "tracing" is used.
            spec: tf.TensorSpecs of a minibatch of any size that the data may have; None: graphs are built for each size.
        """
        self._tensors, self._steps, self._watch, self._spec = tensors, steps, watch, spec

    def take(self, step: int, epoch: int, number: int, fetch: Callable[[], Batch]) -> Taken:
        """Take step `step` of the run, which is number `number` of its epoch (all from 0), on the minibatch of `fetch`."""
        mask = self._tensors.next_step(step, epoch, number)
        new = not self._steps.has(mask)
        start = time.perf_counter()
        with self._tensors.stepping():
            batch = fetch()
            with self._watch.lap("tracing") if new else contextlib.nullcontext():  # the first run included
                compiled = self._steps.get(mask)
                if new and self._spec is not None:
                    compiled.trace(*self._spec)
                loss = float(compiled(*batch))
        return Taken(mask, batch, loss, 1e3 * (time.perf_counter() - start), new)
