"""The activation cache of one selection: frozen layers run once and are cached, then read."""

from typing import Any, List, Optional, Tuple

import numpy as np
import tensorflow as tf

from elastictrainer.cache.cut import minibatch_mb, stored_dtype
from elastictrainer.cache.forward_pass import TYPICAL_MS_PER_MB, ForwardPass, stop_where_examples_mix
from elastictrainer.cache.settings import CacheSettings
from elastictrainer.cache.split import TracedStep
from elastictrainer.cache.storage import (
    Array,
    CacheError,
    CacheReader,
    CacheStorage,
    Column,
    NotCacheable,
    folder_for,
    row_size,
)
from elastictrainer.profiler.profile import Profile
from elastictrainer.steps.compiled_step import CompiledStep
from elastictrainer.steps.graphs import flat
from elastictrainer.steps.keras_compat.variables import random_states
from elastictrainer.steps.objective import Minibatch, examples_in
from elastictrainer.steps.snapshot import digest


class ActivationCache:
    """The two parts of an interval's step: one that writes the cache, and the cached step that reads it."""

    def __init__(
        self,
        step: CompiledStep,
        minibatch: Minibatch,
        spec: Minibatch,
        capacity: int,
        settings: CacheSettings,
        forward: ForwardPass,
        profile: Optional[Profile] = None,
        features: Optional[str] = None,
    ):
        """Make it empty, for at most `capacity` examples; NotCacheable, with the reason, where it cannot be.

        The minibatch has the full size; `spec` are the tf.TensorSpecs of any. Without a profile FLOPs decide
        what to store. `features` names a tensor that `write` also computes, though nobody stores it.
        """
        self._spec, self._settings = spec, settings
        traced = TracedStep(step.in_graph(*spec), random_states(step.objective.model))
        stop_where_examples_mix(traced, minibatch, forward.mixing)
        op_cost = forward.op_cost(profile)
        costs = profile and profile.cache
        ms_per_mb = costs.read_ms_per_mb if costs else TYPICAL_MS_PER_MB
        batch = examples_in(minibatch)
        cut = traced.cut(batch)
        once, frozen = (
            sum(op_cost(traced.ops.operations[k]) for k in ops) for ops in (cut.done_once, traced.ops.frozen)
        )
        if not once > ms_per_mb * sum(minibatch_mb(tensor, batch) for tensor in cut.tensors):
            raise NotCacheable("reading cached activations would take as long as computing them")
        self.share = once / frozen  # of the frozen layers' time, that cached steps save
        self._step = traced.split(cut, [] if features is None else [traced.tensor(features)])
        self._labels = [Column(tuple(label.shape[1:]), label.dtype.name) for label in flat(minibatch[1])]
        columns = self._columns(settings.dtype)
        folder = folder_for(capacity * row_size(columns), settings.kept_bytes, settings.folder)
        try:
            self.storage = CacheStorage(columns, capacity, folder)
        except (CacheError, MemoryError) as error:
            raise NotCacheable(f"there is no room for the cache ({error})") from None
        self._reader: Optional[CacheReader] = None
        self.random_states = self._step.random_states  # which the cached layers draw from
        self.random_start = [v.numpy() for v in self.random_states]
        self._build()

    def write(self, minibatch: Minibatch) -> Optional[tf.Tensor]:
        """Write a minibatch to the cache; returns the value of `features`. CacheError if it cannot."""
        exact, stored, fits, features = self._prefix(*flat(minibatch[0]))
        if not fits:
            self._widen()
            stored, _ = self._as_stored(exact)
        labels = [np.asarray(label) for label in flat(minibatch[1])]
        self.storage.add([*(value.numpy() for value in stored), *labels])
        return features

    def read(self, epoch: int, batch: int) -> List[Array]:
        """Read minibatch number `batch`, in an order of `epoch`'s, to `train` on. CacheError if it cannot."""
        if self._reader is None:
            self._reader = CacheReader(self.storage, self._settings.seed)
        return list(self._reader.minibatch(epoch, batch))

    def train(self, values: List[Array]) -> tf.Tensor:
        """Train on the result of `read`; returns the scalar loss."""
        return self._suffix(*map(tf.convert_to_tensor, values))

    def checksum(self) -> int:
        """Return a checksum of the variables that cached activations depend on; no step changes them."""
        return sum(digest([variable]) for variable in self._step.fixed)  # in any order

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self.storage.close()

    def _columns(self, dtype: str) -> List[Column]:
        """Return the columns of an example; `dtype`: of activations that are wide numbers."""
        tensors = self._step.cut.tensors
        return [*(Column(tuple(t.shape[1:]), stored_dtype(t.dtype, dtype)) for t in tensors), *self._labels]

    def _widen(self) -> None:
        """Store in float32 from here on: a number was too large for float16. NotCacheable without room."""
        narrow, columns = self.storage, self._columns("float32")
        size = narrow.capacity * row_size(columns)
        # The narrow rows stay where they are until all are converted.
        memory = self._settings.kept_bytes - (narrow.bytes if narrow.folder is None else 0)
        # The minibatches written so far keep their float16 values, which were finite.
        wider = narrow.converted(columns, folder_for(size, memory, self._settings.folder))
        self.close()
        self.storage, self._reader = wider, None
        self._build()

    def _as_stored(self, exact: List[tf.Tensor]) -> Tuple[List[tf.Tensor], tf.Tensor]:
        """Return activations in their columns' dtypes, and whether all are finite that became float16."""
        stored = [tf.cast(value, column.dtype) for value, column in zip(exact, self.storage.columns)]
        narrowed = [v for v, before in zip(stored, exact) if v.dtype == tf.float16 != before.dtype]
        return stored, tf.reduce_all([tf.reduce_all(tf.math.is_finite(value)) for value in narrowed])

    def _build(self) -> None:
        step, tensors = self._step, self._step.cut.tensors

        def prefix(*inputs: tf.Tensor) -> Any:
            values = step.prefix(*inputs)
            exact, features = values[: len(tensors)], values[len(tensors) :]
            return exact, *self._as_stored(exact), tf.cast(features[0], tf.float32) if features else None

        def suffix(*values: tf.Tensor) -> tf.Tensor:
            exact = [tf.cast(value, tensor.dtype) for value, tensor in zip(values, tensors)]
            return step.suffix(*exact, *values[len(tensors) :])

        self._prefix = tf.function(prefix, flat(self._spec[0]), autograph=False)
        stored = [tf.TensorSpec(t.shape, column.dtype) for t, column in zip(tensors, self.storage.columns)]
        # A tf.function would look for its graph at every call: a twentieth of a cached step of MobileNetV2.
        train = tf.function(suffix, autograph=False)
        self._suffix = train.get_concrete_function(*stored, *flat(self._spec[1]))
