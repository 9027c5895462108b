"""The variants of a selection's step, whole or cached, and its cache writes, timed side by side."""

import itertools
from typing import Any, Callable, Dict, Optional, Sequence

import numpy as np
import tensorflow as tf

from elastictrainer.cache.activation_cache import ActivationCache
from elastictrainer.cache.forward_pass import ForwardPass
from elastictrainer.cache.settings import CacheSettings
from elastictrainer.profiler.calibration import ratios_to_full
from elastictrainer.profiler.profile import Profile
from elastictrainer.steps import optimizers
from elastictrainer.steps.compiled_step import CompiledStep
from elastictrainer.steps.keras_objective import Minibatch
from elastictrainer.steps.kinds import CACHE_READ, CACHE_WRITE, FULL, PLAIN
from elastictrainer.steps.objective import Objective
from elastictrainer.steps.snapshot import preserve_variables

KINDS = (PLAIN, CACHE_WRITE, CACHE_READ)
_WRITTEN = 16  # minibatches: enough that each read finds its minibatch outside the processor's caches


class StepVariant:
    """A step of one kind, which runs as a `CompiledStep` does, and counts its runs."""

    def __init__(self, run: Callable[[], tf.Tensor]):
        self._run, self.runs = run, 0

    def __call__(self, x: Any, y: Any) -> tf.Tensor:
        """Train, whatever the arguments, on what the kind has; returns the scalar loss."""
        self.runs += 1
        return self._run()


class StepVariants:
    """A selection's step as a whole and cached, its cache writes, and the full step.

    Raises:
        NotCacheable: the selection has no activations that can be cached.
    """

    def __init__(
        self,
        profile: Profile,
        mask: np.ndarray,
        objective: Objective,
        optimizer: Any,
        batch: Minibatch,
    ):
        """
        Args:
            profile: the profile, with its `cache`.
            mask: (N,) bool: the selection.
            objective, optimizer: as for CompiledStep.
            batch: inputs and labels; all steps train on it.
        """

        def step_of(chosen: np.ndarray, full: Optional[CompiledStep] = None) -> CompiledStep:
            variables = [v for v, train in zip(objective.model.trainable_variables, chosen) if train]
            return CompiledStep(objective, optimizer, variables, full=full)

        self._batch = batch
        capacity = _WRITTEN * len(tf.nest.flatten(batch[0])[0])
        spec = tf.nest.map_structure(lambda v: None if v is None else tf.TensorSpec(v.shape, v.dtype), batch)
        full = step_of(profile.connected)
        full.trace(*batch)
        plain = step_of(mask, full)
        forward = ForwardPass(objective, optimizer, batch, full)
        self.cache = ActivationCache(plain, batch, spec, capacity, CacheSettings(), forward, profile)
        self._places = itertools.count()
        self._variables = [*full.state(), *optimizers.variables_of(optimizer), *self.cache.random_states]
        with preserve_variables(self._variables):
            for _ in range(_WRITTEN):
                self.cache.write(batch)
        self._steps: Dict[str, Any] = {
            FULL: full,
            PLAIN: plain,
            CACHE_WRITE: StepVariant(self._write),
            CACHE_READ: StepVariant(self._read),
        }

    def get(self, kind: str) -> Any:
        """Return the step of a kind, called with inputs and labels."""
        return self._steps[kind]

    def ratios(self, seconds: float, kinds: Sequence[str] = KINDS, **options: Any) -> Dict[str, float]:
        """Measure the time of each of these kinds of steps over a full one's, by the clock."""
        with preserve_variables(self._variables):
            found = ratios_to_full(self.get, kinds, FULL, self._batch, seconds, **options)
        return dict(zip(kinds, map(float, found)))

    def close(self) -> None:
        """Free the cache."""
        self.cache.close()

    def _write(self) -> tf.Tensor:
        if self.cache.storage.rows == self.cache.storage.capacity:
            self.cache.storage.ends.clear()  # the same again
        self.cache.write(self._batch)  # NumPy has the values then: nothing is left to wait for
        return tf.constant(0.0)

    def _read(self) -> tf.Tensor:
        return self.cache.train(self.cache.read(0, next(self._places)))
