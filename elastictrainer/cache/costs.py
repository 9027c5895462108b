"""Measure the costs of cached activations: which forward work can be cached, and cache writes and reads; and
the variants of a selection's step side by side.
"""

import dataclasses
import gc
import itertools
import operator
from typing import Any, Callable, Dict, Optional, Sequence, Set, Tuple

import numpy as np
import tensorflow as tf

from elastictrainer.cache.activation_cache import ActivationCache
from elastictrainer.cache.cut import OpCost, minibatch_mb
from elastictrainer.cache.forward_pass import ForwardPass
from elastictrainer.cache.settings import CacheSettings
from elastictrainer.cache.split import TracedStep
from elastictrainer.cache.storage import CacheReader, CacheStorage, Column, NotCacheable
from elastictrainer.profiler.calibration import cheapest, middle, ratios_to_full, with_calibrated_cache
from elastictrainer.profiler.charging import flops_of, sums
from elastictrainer.profiler.cost_groups import CacheCosts, CostGroups
from elastictrainer.profiler.profile import Profile
from elastictrainer.steps import optimizers
from elastictrainer.steps.compiled_step import CompiledStep
from elastictrainer.steps.graphs import Nested
from elastictrainer.steps.objective import Minibatch, Objective, examples_in
from elastictrainer.steps.snapshot import preserve_variables
from elastictrainer.steps.timing import CACHE_READ, CACHE_WRITE, FULL, PLAIN, elapsed_ms

KINDS = (PLAIN, CACHE_WRITE, CACHE_READ)
_MOST_CUTS = 200  # depths whose cut is looked for
_MB = (0.02, 2.0)  # of a minibatch, that writing and reading are timed with
_UNSTORABLE_MB = 1e6  # no saving is worth it
_ROUNDS = 40  # of each; the median counts
_LEAST_S = 2.0  # to calibrate in: shorter measurements differ by more than they are to correct
_WRITTEN = 16  # minibatches: enough that each read finds its minibatch outside the processor's caches


def with_cache_costs(
    profile: Profile, objective: Objective, optimizer: tf.keras.optimizers.Optimizer, batch: Minibatch
) -> Profile:
    """Add `cache` to `profile`, measured in a few seconds, and calibrated for half as long as the profile."""
    full = CompiledStep(objective, optimizer, objective.model.trainable_variables)
    full.trace(*batch)
    costs = _measured(profile, full, batch)
    gc.collect()  # the graphs of what was measured are in each other's way otherwise
    profile = dataclasses.replace(profile, cache=costs)
    seconds = float(profile.metadata.get("calibration_seconds", 0.0)) / 2
    if seconds < _LEAST_S:
        return profile

    def ratios(mask: np.ndarray, kinds: Sequence[str], share: float) -> Dict[str, float]:
        steps = TimedVariants(profile, mask, full, batch)
        found = steps.ratios(share * seconds, kinds)
        steps.close()
        return found

    try:  # timed in turn with the full step: three kinds of steps, and one
        inside = ratios(middle(profile), KINDS, 2 / 3)
        short = ratios(cheapest(profile), (CACHE_READ,), 1 / 3)
    except NotCacheable:
        return profile
    return with_calibrated_cache(
        profile, inside[PLAIN], inside[CACHE_WRITE], inside[CACHE_READ], short[CACHE_READ]
    )


def _measured(profile: Profile, full: CompiledStep, batch: Minibatch) -> CacheCosts:
    forward = ForwardPass(full.objective, full.optimizer, batch, full)
    traced, members, op_cost = forward.traced, forward.members, forward.op_cost(profile)
    operations, frozen = traced.ops.operations, traced.ops.frozen
    # The profile has the ops of the inputs alone, such as augmentation, in one group with all other work of
    # no tensor: their share of it is measured by itself.
    once = sums((members[k], op_cost(operations[k])) for k in frozen if members[k])
    once[0] = min(_input_ms(traced, members, batch), profile.forward.always)
    flops = flops_of(operations)
    counted = sums((members[k], flops[k]) for k in frozen)
    writes, reads = zip(*(_transfer_of(mb, examples_in(batch)) for mb in _MB))
    cut_mb, recompute_ms = _cuts(profile, traced, members, op_cost, batch)
    ms, flops_of_ops = (CostGroups.from_bits(len(profile), amounts) for amounts in (once, counted))
    return CacheCosts(ms, flops_of_ops, cut_mb, recompute_ms, *_line(writes), *_line(reads))


def _input_ms(traced: TracedStep, members: Sequence[int], batch: Minibatch) -> float:
    """Return the ms of the ops that depend on the inputs alone, such as augmentation."""
    edge = traced.edge_of({k for k in traced.ops.frozen if not members[k]})
    if not edge:
        return 0.0
    inputs = [tf.convert_to_tensor(value) for value in tf.nest.flatten(batch[0])]
    part, states = traced.prefix(edge)
    first = tf.function(part, autograph=False)  # as `ActivationCache` does when it writes
    with preserve_variables(states):
        return _median_ms(lambda: first(*inputs))


def _cuts(
    profile: Profile,
    traced: TracedStep,
    members: Sequence[int],
    op_cost: OpCost,
    batch: Minibatch,
) -> Tuple[np.ndarray, np.ndarray]:
    """Return (N,) MB that the cut at each depth stores of a minibatch, and (N,) ms of work behind it."""
    size = examples_in(batch)
    order = [int(tensor) for tensor in profile.order]
    # Where the tensors up to one train, the ops that depend on none of them are frozen.
    training = list(itertools.accumulate((1 << tensor for tensor in order), operator.or_))
    asked = set(np.linspace(0, len(order) - 1, min(len(order), _MOST_CUTS)).astype(int).tolist())
    cut_mb, again_ms = np.zeros(len(order)), np.zeros(len(order))
    frozen: Optional[Set[int]] = None
    stored_mb = recomputed_ms = 0.0
    for place in reversed(range(len(order))):  # a depth that is not asked for is like the next one inwards
        before = frozen
        if place in asked:
            frozen = {k for k in traced.ops.frozen if not members[k] & training[place]}
        if frozen is not None and frozen != before:
            cut = traced.cut(size, frozen)
            stored_mb = sum(minibatch_mb(tensor, size) for tensor in cut.tensors)
            recomputed_ms = sum(op_cost(traced.ops.operations[k]) for k in cut.recomputed)
        cut_mb[order[place]], again_ms[order[place]] = stored_mb, recomputed_ms
    return np.where(np.isfinite(cut_mb), cut_mb, _UNSTORABLE_MB), again_ms


def _transfer_of(mb: float, batch: int) -> Tuple[float, float]:
    """Measure the milliseconds to write and to read a minibatch of so many MB."""
    width = max(1, int(1e6 * mb / 4 / batch))
    exact = tf.random.stateless_normal((batch, width), (1, 2))
    storage = CacheStorage([Column((width,), "float16")], batch * _ROUNDS)
    narrow = tf.function(lambda value: tf.cast(value, tf.float16))
    widen = tf.function(lambda value: tf.cast(value, tf.float32))
    write_ms = _median_ms(lambda: storage.add([narrow(exact).numpy()]))
    reader, places = CacheReader(storage, 0), itertools.count()
    read_ms = _median_ms(lambda: widen(*reader.minibatch(0, next(places))))
    reader.close()
    storage.close()
    return write_ms, read_ms


def _line(times: Sequence[float]) -> Tuple[float, float]:
    """Return the ms of any minibatch, and ms per MB, by the times of minibatches of `_MB`."""
    slope = max(0.0, (times[1] - times[0]) / (_MB[1] - _MB[0]))
    return max(0.0, times[0] - slope * _MB[0]), slope


def _median_ms(run: Callable[[], Any]) -> float:
    def finished() -> None:
        for value in tf.nest.flatten(run()):
            if getattr(value, "dtype", None) != tf.variant:  # a list of tensors, which a loop goes through
                np.asarray(value)  # waits for the result

    times = [elapsed_ms(finished) for _ in range(_ROUNDS)]
    return float(np.median(times[_ROUNDS // 4 :]))  # the first ones find cold caches


class _Counted:
    """Runs a function of the number of runs before, and counts them, as a `CompiledStep` does."""

    def __init__(self, run: Callable[[int], tf.Tensor]):
        self._run, self.runs = run, 0

    def __call__(self, x: Nested, y: Nested) -> tf.Tensor:
        """Train, whatever the arguments, on what the kind has; returns the scalar loss."""
        self.runs += 1
        return self._run(self.runs - 1)


class TimedVariants:
    """A selection's whole and cached steps, its cache writes, and the full step; NotCacheable if none."""

    def __init__(self, profile: Profile, mask: np.ndarray, full: CompiledStep, batch: Minibatch):
        """Take a profile with its `cache`, a selection (N,) bool, and the traced full step.

        All steps train on `batch`.
        """
        self._batch = batch
        capacity = _WRITTEN * examples_in(batch)
        spec = tf.nest.map_structure(lambda v: None if v is None else tf.TensorSpec(v.shape, v.dtype), batch)
        chosen = [v for v, trains in zip(full.variables, mask) if trains]
        plain = CompiledStep(full.objective, full.optimizer, chosen, full=full)
        forward = ForwardPass(full.objective, full.optimizer, batch, full)
        self.cache = ActivationCache(plain, batch, spec, capacity, CacheSettings(), forward, profile)
        self._variables = [*full.state(), *optimizers.variables_of(full.optimizer), *self.cache.random_states]
        with preserve_variables(self._variables):
            for _ in range(_WRITTEN):
                self.cache.write(batch)
        self._steps: Dict[str, Any] = {
            FULL: full,
            PLAIN: plain,
            CACHE_WRITE: _Counted(self._write),
            CACHE_READ: _Counted(self._read),
        }

    def get(self, kind: str) -> Any:
        return self._steps[kind]

    def ratios(self, seconds: float, kinds: Sequence[str] = KINDS, **options: Any) -> Dict[str, float]:
        """Measure the time of each of these kinds of steps over a full one's, by the clock."""
        with preserve_variables(self._variables):
            found = ratios_to_full(self.get, kinds, FULL, self._batch, seconds, **options)
        return dict(zip(kinds, map(float, found)))

    def close(self) -> None:
        self.cache.close()

    def _write(self, number: int) -> tf.Tensor:
        # Over the minibatches that are there, in turn: reads find all of them at any time.
        ends = self.cache.storage.ends
        self.cache.storage.ends = ends[: number % _WRITTEN]
        self.cache.write(self._batch)  # NumPy has the values then: nothing is left to wait for
        self.cache.storage.ends = ends
        return tf.constant(0.0)

    def _read(self, number: int) -> tf.Tensor:
        return self.cache.train(self.cache.read(*divmod(number, _WRITTEN)))
