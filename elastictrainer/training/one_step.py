"""A training step, as every loop takes it: decide what trains, fetch the minibatch, run, time it, and account for it."""

import contextlib
import time
from dataclasses import dataclass
from typing import Any, Callable, Optional, Tuple, Union

import numpy as np
import tensorflow as tf

from elastictrainer.selection.elastic import SelectedTensors
from elastictrainer.selection.fixed import FixedTensors
from elastictrainer.steps.compiled_step import StepCache
from elastictrainer.training.progress import Progress
from elastictrainer.training.stopwatch import FULL_TRACING, LOOP, SELECTION, SHARED, STEPS, TRACING, Stopwatch

Batch = Tuple[Any, Any]


@dataclass(frozen=True)
class Taken:
    """A step that was taken.

    Attributes:
        mask: (N,) bool: what was trained.
        batch: inputs and labels.
        loss: of the minibatch, before the update.
        ms: wall-clock time, fetching included, deciding not.
        whole: the minibatch was not smaller than the first.
    """

    mask: np.ndarray
    batch: Batch
    loss: float
    ms: float
    whole: bool


class Stepper:
    """Takes training steps on the tensors that are to train, and keeps the run's progress."""

    def __init__(
        self,
        tensors: Union[FixedTensors, SelectedTensors],
        steps: StepCache,
        watch: Stopwatch,
        progress: Progress,
        spec: Optional[Batch] = None,
    ):
        """
        Args:
            tensors: decides what trains.
            steps: the compiled steps.
            watch: its laps SELECTION, STEPS, TRACING, FULL_TRACING and LOOP are used.
            progress: its `epoch` is the caller's to move.
            spec: tf.TensorSpecs of a minibatch of any size that the data may have; None: graphs are built for each size.
        """
        self._tensors, self._steps, self._watch, self.progress, self._spec = (
            tensors,
            steps,
            watch,
            progress,
            spec,
        )
        self._size: Optional[int] = None  # of a whole minibatch

    def full_training_s(self) -> Optional[float]:
        """What full training would have taken for the steps done; None before the first full step.

        Its steps, by those that were made, and what it has in common with this run: waiting for the first minibatch of
        an epoch, the loop around the steps, checkpoints, and the compilation of its step.
        """
        compiling = self._watch.of(FULL_TRACING) > 0  # the first run, a step, is in that
        steps_ms = self._tensors.full_training_ms(self.progress.step - compiling)
        return steps_ms and 1e-3 * steps_ms + self._watch.of(*SHARED)

    def take(self, fetch: Callable[[], Batch]) -> Taken:
        """Take the next step of the run, on the minibatch of `fetch`."""
        progress, tensors = self.progress, self._tensors
        step = progress.step
        with self._watch.lap(SELECTION):
            mask = tensors.next_step(step, progress.epoch, progress.batch)
        new = not self._steps.has(mask)
        building = FULL_TRACING if mask.all() else TRACING
        start = time.perf_counter()
        with tensors.stepping(), self._watch.lap(STEPS):
            with contextlib.nullcontext() if progress.batch else self._watch.lap(LOOP):
                batch = fetch()
            waited_ms = 0.0 if progress.batch else 1e3 * (time.perf_counter() - start)
            with self._watch.lap(building) if new else contextlib.nullcontext():  # the first run included
                compiled = self._steps.get(mask)
                if new and self._spec is not None:
                    compiled.trace(*self._spec)
                loss = float(compiled(*batch))
        ms = 1e3 * (time.perf_counter() - start)
        size = int(tf.nest.flatten(batch[0])[0].shape[0])
        self._size = self._size or size
        whole = size == self._size
        if whole:  # the last minibatch of an epoch may be smaller; its time would say nothing
            if not new:
                progress.step_took(ms)
            tensors.took(step, ms - waited_ms, batch, new)
        if tensors.timings is not None:
            progress.predicted_ratio += tensors.timings.step_time(mask) / tensors.timings.full_ms
            progress.flops += tensors.timings.step_flops(mask) or 0.0
        progress.step_done(loss)
        return Taken(mask, batch, loss, ms, whole)
