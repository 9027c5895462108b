"""A selection's steps computed as a whole and replaying, and its recording, to be timed side by side."""

import itertools
from typing import Any, Callable, Dict, Sequence, Tuple

import numpy as np
import tensorflow as tf

from elastictrainer.profiler.interleaved import ratios_to_full
from elastictrainer.profiler.timings import TensorTimings
from elastictrainer.reuse.forward_pass import ForwardPass
from elastictrainer.reuse.frozen_work import FrozenWork
from elastictrainer.reuse.settings import ReuseSettings
from elastictrainer.selection.policy import FULL, PLAIN, RECORDING, REPLAY
from elastictrainer.steps import optimizers
from elastictrainer.steps.compiled_step import CompiledStep
from elastictrainer.steps.objective import Objective
from elastictrainer.steps.snapshot import restored

KINDS = (PLAIN, RECORDING, REPLAY)
_RECORDED = 16  # minibatches: enough that each replayed one comes from memory anew

Minibatch = Tuple[Any, Any]


class StepOfKind:
    """A step of one kind, which runs as a `CompiledStep` does, and counts its runs."""

    def __init__(self, run: Callable[[], tf.Tensor]):
        self._run, self.runs = run, 0

    def __call__(self, x: Any, y: Any) -> tf.Tensor:
        """Train, whatever the arguments, on what the kind has; returns the scalar loss."""
        self.runs += 1
        return self._run()


class StepsOfKinds:
    """The steps of a selection in each of their kinds, its recording of a minibatch, and the full step.

    Raises:
        Unusable: the selection has no frozen work that can be done once.
    """

    def __init__(
        self,
        timings: TensorTimings,
        mask: np.ndarray,
        objective: Objective,
        optimizer: Any,
        batch: Minibatch,
        metrics: Tuple[Any, ...] = (),
    ):
        """
        Args:
            timings: the profile, with its `reuse`.
            mask: (N,) bool: the selection.
            objective, optimizer, metrics: as for CompiledStep.
            batch: inputs and labels; all steps train on it.
        """

        def step_of(chosen: np.ndarray) -> CompiledStep:
            variables = [v for v, train in zip(objective.model.trainable_variables, chosen) if train]
            return CompiledStep(objective, optimizer, variables, metrics)

        self._batch = batch
        capacity = _RECORDED * len(tf.nest.flatten(batch[0])[0])
        spec = tf.nest.map_structure(lambda v: None if v is None else tf.TensorSpec(v.shape, v.dtype), batch)
        full, plain = step_of(timings.connected), step_of(mask)
        full.trace(*batch)
        forward = ForwardPass(objective, optimizer, batch)
        self.work = FrozenWork(step_of(mask), batch, spec, capacity, ReuseSettings(), forward, timings)
        self._places = itertools.count()
        self._variables = [*full.state(), *optimizers.variables_of(optimizer), *self.work.random_states]
        with restored(self._variables):
            for _ in range(_RECORDED):
                self.work.keep(batch)
        self._steps: Dict[str, Any] = {
            FULL: full,
            PLAIN: plain,
            RECORDING: StepOfKind(self._record),
            REPLAY: StepOfKind(self._replay),
        }

    def get(self, kind: str) -> Any:
        """The step of a kind, called with inputs and labels."""
        return self._steps[kind]

    def ratios(self, seconds: float, kinds: Sequence[str] = KINDS, **options: Any) -> Dict[str, float]:
        """What each of these kinds of steps takes of a full one, by the clock; see `ratios_to_full`."""
        with restored(self._variables):
            found = ratios_to_full(self, kinds, FULL, self._batch, seconds, **options)
        return dict(zip(kinds, map(float, found)))

    def close(self) -> None:
        """Free what was recorded."""
        self.work.close()

    def _record(self) -> tf.Tensor:
        if self.work.recording.rows == self.work.recording.capacity:
            self.work.recording.ends.clear()  # the same again
        self.work.keep(self._batch)  # NumPy has the values then: nothing is left to wait for
        return tf.constant(0.0)

    def _replay(self) -> tf.Tensor:
        return self.work.train(self.work.read(0, next(self._places)))
