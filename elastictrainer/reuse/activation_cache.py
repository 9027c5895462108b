"""The activation cache of one selection: frozen layers run once and are cached, then read."""

import shutil
import tempfile
from pathlib import Path
from typing import Any, Callable, List, Optional, Tuple

import numpy as np
import tensorflow as tf

from elastictrainer.profiler.profile import Profile
from elastictrainer.reuse.cache_reader import CacheReader
from elastictrainer.reuse.cache_storage import CacheError, CacheStorage, Column, NotCacheable
from elastictrainer.reuse.example_mixing import stop_where_examples_mix
from elastictrainer.reuse.forward_pass import ForwardPass
from elastictrainer.reuse.op_costs import TYPICAL_MS_PER_MB, OpCosts
from elastictrainer.reuse.settings import ReuseSettings
from elastictrainer.reuse.split import SplitStep, TracedStep
from elastictrainer.reuse.storable import is_storable, row_bytes, stored_dtype
from elastictrainer.steps.compiled_step import CompiledStep
from elastictrainer.steps.graph_part import optimised
from elastictrainer.steps.keras_compat.variables import random_states
from elastictrainer.steps.keras_objective import Minibatch
from elastictrainer.steps.snapshot import digest
from elastictrainer.steps.step_part import flat

_SPARE = 0.1  # of the free disk space stays free: other programs write too
_ATTEMPTS = 8  # to find a cut with fewer bytes: the last one's cost 4000 times as much
_FEWER = 4.0  # how much dearer bytes become while a cache has too many


class ActivationCache:
    """The two parts of an interval's step: one that writes the cache, and the cached step that reads it.

    Attributes:
        storage: the examples stored so far.
        share: of the frozen layers' time that cached steps save.
        random_states: variables that the cached layers draw random numbers from.
        random_start: their values before the first minibatch.
    """

    def __init__(
        self,
        step: CompiledStep,
        minibatch: Minibatch,
        spec: Any,
        capacity: int,
        settings: ReuseSettings,
        forward: ForwardPass,
        profile: Optional[Profile] = None,
        features: Optional[str] = None,
    ):
        """
        Args:
            step: of the selection.
            minibatch: inputs and labels of a full size.
            spec: tf.TensorSpecs of any minibatch.
            capacity: examples at most.
            settings: of the cache.
            forward: the model's.
            profile: its profile; None: what to store is decided by FLOPs.
            features: name of a tensor that `write` also computes, though nobody stores it.

        Raises:
            NotCacheable: the reason.
        """
        self._spec, self._settings, self._features = spec, settings, features
        self._batch = int(flat(minibatch[0])[0].shape[0])
        self._states = random_states(step.objective.model)
        traced = TracedStep(step.part(*spec), self._states)
        stop_where_examples_mix(traced, minibatch, forward.examples)
        op_cost = forward.op_costs(profile)
        reuse = profile and profile.reuse
        self._ms_per_mb = reuse.read_ms_per_mb if reuse else TYPICAL_MS_PER_MB
        self._split, folder = self._choose(traced, capacity, op_cost)
        once, frozen = (
            sum(op_cost(traced.ops.operations[k]) for k in ops)
            for ops in (self._split.cut.done_once, traced.ops.frozen)
        )
        self.share = once / frozen if frozen else 0.0
        self._labels = [Column(tuple(label.shape[1:]), label.dtype.name) for label in flat(minibatch[1])]
        self._dtype, self._folder = settings.dtype, folder
        try:
            self.storage = CacheStorage(self._columns(), capacity, folder)
        except (CacheError, MemoryError) as error:
            raise NotCacheable(f"there is no room for the cache ({error})") from None
        self._reader: Optional[CacheReader] = None
        self.random_states = self._split.random_states
        self.random_start = [v.numpy() for v in self.random_states]
        self._compile(self._split.suffix)

    @property
    def location(self) -> str:
        """Return where the cache is, for a message."""
        return "in memory" if self._folder is None else f"in {self._folder}"

    def write(self, minibatch: Minibatch) -> Any:
        """Write a minibatch to the cache; returns the value of `features`, None without. CacheError if it
        cannot.
        """
        with optimised(1):
            exact, stored, fits, features = self._prefix(*flat(minibatch[0]))
        if not fits:
            self._widen()
            stored, _ = self._narrow(exact)
        labels = [np.asarray(label) for label in flat(minibatch[1])]
        self.storage.add([*(value.numpy() for value in stored), *labels])
        return features

    def read(self, epoch: int, batch: int) -> List[Any]:
        """Read minibatch number `batch`, in an order of `epoch`'s, to `train` on. CacheError if it cannot."""
        if self._reader is None:
            self._reader = CacheReader(self.storage, self._settings.seed)
        return list(self._reader.minibatch(epoch, batch))

    def train(self, values: List[Any]) -> tf.Tensor:
        """Train on the result of `read`; returns the scalar loss."""
        with optimised(1):
            return self._suffix(*map(tf.convert_to_tensor, values))

    def checksum(self) -> int:
        """Return a checksum of the variables that the cached activations depend on; steps leave them as they
        are.
        """
        return sum(digest([variable]) for variable in self._split.fixed)  # in any order

    def close(self) -> None:
        """Free memory and disk space."""
        if self._reader is not None:
            self._reader.close()
        self.storage.close()

    # How it is made

    def _choose(
        self, traced: TracedStep, capacity: int, op_cost: OpCosts
    ) -> Tuple[SplitStep, Optional[Path]]:
        """Split the step at the least-cost cut that fits into memory or a file; returns that file's folder,
        too.
        """
        # Where the cheapest cut is too large, make bytes dearer until one fits: it then recomputes more.
        weight, size = 1.0, 0
        more = [] if self._features is None else [traced.tensor(self._features)]
        for _ in range(_ATTEMPTS):
            cut = traced.cut(op_cost, lambda tensor: self._read_ms(tensor) * weight)  # noqa: B023
            saved = sum(op_cost(traced.ops.operations[k]) for k in cut.done_once)
            if not cut.tensors or saved <= sum(map(self._read_ms, cut.tensors)):
                raise NotCacheable("reading cached activations would take as long as computing them")
            size = capacity * sum(row_bytes(tensor, self._settings.dtype) for tensor in cut.tensors)
            fits, folder = self._place(size)
            if fits:
                return traced.split(cut, more), folder
            weight *= _FEWER
        raise NotCacheable(f"a cache of {1e-9 * size:.1f} GB fits neither into memory nor on the disk")

    def _read_ms(self, tensor: Any) -> float:
        """Return the ms of reading a minibatch of the tensor; infinite where it cannot be stored."""
        if not is_storable(tensor, self._batch):
            return np.inf
        return 1e-6 * row_bytes(tensor, "float32") * self._batch * self._ms_per_mb

    def _place(self, size: int) -> Tuple[bool, Optional[Path]]:
        """Return whether a cache of so many bytes fits, and in which folder; None: in memory."""
        if size <= self._settings.kept_bytes:
            return True, None
        folder = self._settings.folder or Path(tempfile.gettempdir())
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return size <= (1 - _SPARE) * shutil.disk_usage(folder).free, folder
        except OSError as error:
            raise NotCacheable(f"{folder} cannot hold {1e-9 * size:.1f} GB ({error.strerror})") from None

    def _columns(self) -> List[Column]:
        tensors = self._split.cut.tensors
        features = [Column(tuple(t.shape[1:]), stored_dtype(t.dtype, self._dtype)) for t in tensors]
        return [*features, *self._labels]

    def _widen(self) -> None:
        """Store in float32 from here on: a number was too large for float16."""
        # The minibatches written so far keep their float16 values, which were finite.
        self._dtype = "float32"
        wider = self.storage.converted(self._columns(), self._folder)
        self.close()
        self.storage, self._reader = wider, None
        self._compile(self._suffix_of_exact)

    def _compile(self, suffix: Callable[..., tf.Tensor]) -> None:
        self._suffix_of_exact = suffix
        tensors, columns = self._split.cut.tensors, self._columns()
        stored = [tf.TensorSpec(t.shape, column.dtype) for t, column in zip(tensors, columns)]

        def narrow(exact: List[tf.Tensor]) -> Tuple[List[tf.Tensor], tf.Tensor]:
            values = [tf.cast(value, spec.dtype) for value, spec in zip(exact, stored)]
            narrowed = [v for v, tensor in zip(values, tensors) if v.dtype == tf.float16 != tensor.dtype]
            return values, tf.reduce_all([tf.reduce_all(tf.math.is_finite(value)) for value in narrowed])

        def cached_step(*values: tf.Tensor) -> tf.Tensor:
            exact = [tf.cast(value, tensor.dtype) for value, tensor in zip(values, tensors)]
            return suffix(*exact, *values[len(tensors) :])

        def written(*inputs: tf.Tensor) -> Any:
            values = self._split.prefix(*inputs)
            exact, features = values[: len(tensors)], values[len(tensors) :]
            return exact, *narrow(exact), tf.cast(features[0], tf.float32) if features else None

        # A tf.function would look for its graph at every call: a twentieth of a cached step of MobileNetV2.
        self._prefix = tf.function(written, flat(self._spec[0]), autograph=False)
        self._narrow = narrow
        train = tf.function(cached_step, autograph=False)
        self._suffix = train.get_concrete_function(*stored, *flat(self._spec[1]))
