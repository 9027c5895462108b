"""Where a training step is cut: which of its ops are frozen, and which tensors of each example are stored.

The cut goes by ops, not by layers: layers that train behind frozen ones may begin in the middle of one, and
subclassed networks, recurrent loops and attention have no layers to cut at.

A cut of the least sum of reading and computing time, a minimum cut of the graph, gained nothing over storing
the last frozen tensors: above four tensors of MobileNetV2 both stored the same 16 to 263 kB an example. So
they did in 38 of 40 selections of MobileNetV2, ResNet50V2 and DenseNet121 at 96 pixels and of a small ViT; in
two of ResNet50V2 it stored 46 kB instead of 62, by computing a normalisation again.
"""

import enum
import functools
import operator
from dataclasses import dataclass
from typing import AbstractSet, Any, Callable, Dict, FrozenSet, List, Sequence, Set

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from elastictrainer.cache.storage import Column
from elastictrainer.steps.graph_library import CALLS, LOOPS, functions_of, kinds_in, reached
from elastictrainer.steps.graphs import READS, written_by

OpCost = Callable[[tf.Operation], float]  # from an op to its milliseconds

_SHAPES = ("Shape", "ShapeN", "Size", "Rank")  # their result says nothing about the values
_STATELESS_KINDS = ("Placeholder", "VarHandleOp", "NoOp")
_RUNS_FUNCTIONS = (*CALLS, *LOOPS, "If", "Case")
_RANDOM = ("Random", "Multinomial", "TruncatedNormal", "RngReadAndSkip", "RngSkip")


def is_storable(tensor: tf.Tensor, batch: int) -> bool:
    """Return whether the tensor of a graph seems to hold a row for each of `batch` examples."""
    shape = tensor.shape
    return (
        (tensor.dtype.is_floating or tensor.dtype.is_integer or tensor.dtype.is_bool)
        and shape.rank is not None
        and shape.rank >= 1
        and shape[0] in (None, batch)
        and shape[1:].is_fully_defined()
    )


def stored_dtype(dtype: tf.DType, floats: str) -> str:
    """Return the dtype that `dtype` is stored in: `floats` if wide, or bfloat16, which NumPy lacks."""
    narrowed = dtype in (tf.float32, tf.float64) and floats == "float16"
    return floats if narrowed or dtype == tf.bfloat16 else str(dtype.name)


def row_bytes(tensor: tf.Tensor, floats: str) -> int:
    return Column(tuple(tensor.shape[1:]), stored_dtype(tensor.dtype, floats)).bytes


def minibatch_mb(tensor: tf.Tensor, batch: int) -> float:
    """Return the MB of float32 that `batch` rows of the tensor have; infinite where it cannot be stored."""
    return 1e-6 * batch * row_bytes(tensor, "float32") if is_storable(tensor, batch) else np.inf


class _Depends(enum.IntFlag):
    """What the result of an op depends on; through shapes, which say nothing about values, in name alone."""

    INPUT = enum.auto()  # inputs, also through shapes
    CHANGE = enum.auto()  # labels, and variables that the step changes; also through shapes
    VALUE = enum.auto()  # the values of inputs
    DRAW = enum.auto()  # random numbers
    WEIGHT = enum.auto()  # a variable
    DROPOUT = enum.auto()  # features mixed with random numbers, and no weight since


@dataclass
class FrozenOps:
    """The ops of a step, by what they depend on. Sets hold positions in `operations`."""

    operations: List[tf.Operation]  # of the step, producers before consumers
    # Ops that depend on the inputs, placeholders among them, and on nothing that the step changes: their
    # result is the same for the same augmented copy of an example.
    frozen: Set[int]
    moving: Set[int]  # ops that depend on a variable that the step changes, or on the labels
    random: Set[int]  # those that draw random numbers from a state in a variable, or in themselves
    # Frozen ops whose result is not stored: it says nothing about the inputs' values, as shapes and dropout's
    # masks do; or it has not one row for each example; or it mixes features with random numbers, as dropout
    # does, up to the next weight.
    unstored: Set[int]
    random_states: Dict[int, FrozenSet[int]]  # ids of the random states' handles that an op takes, by op

    @functools.cached_property
    def position(self) -> Dict[str, int]:
        return {op.name: k for k, op in enumerate(self.operations)}

    def upstream(
        self, ends: Set[int], without: AbstractSet[int] = frozenset(), given: AbstractSet[int] = frozenset()
    ) -> Set[int]:
        """Return the ops that `ends` are computed by, themselves included.

        Not those `without`, nor what only they need; nor what is needed for tensors whose ids are `given`.
        """

        def before(k: int) -> Set[int]:
            wanted = (tensor for tensor in self.operations[k].inputs if id(tensor) not in given)
            return {self.position[tensor.op.name] for tensor in wanted} - without

        return reached(ends, before)

    def downstream(self, starts: Set[int]) -> Set[int]:

        def readers(k: int) -> Set[int]:
            names = {reader.name for t in self.operations[k].outputs for reader in t.consumers()}
            # A reader without a position is of another step in the same graph.
            return {self.position[name] for name in names if name in self.position}

        return reached(starts, readers)


def frozen_ops(
    operations: List[tf.Operation],
    library: Any,
    inputs: Sequence[tf.Tensor],
    labels: Sequence[tf.Tensor],
    random_states: Sequence[tf.Tensor],
) -> FrozenOps:
    """Sort the ops of a training step, producers before consumers, by plain reachability.

    What the step writes to, moves: trained tensors, their slots, counters, metrics, and statistics of batch
    normalisation in training. A random state is the exception: an op that draws from it is done once where
    all else that it needs is. `library` has the functions that ops call, `random_states` the graph's handles.
    """
    position = {op.name: k for k, op in enumerate(operations)}
    state_handles = {id(handle) for handle in random_states}
    written = {id(handle) for op in operations for handle in written_by(op)} - state_handles
    functions = functions_of(library)
    is_input = {position[tensor.op.name] for tensor in inputs}
    is_label = {position[tensor.op.name] for tensor in labels}
    random: Set[int] = set()
    states: Dict[int, FrozenSet[int]] = {}
    depends = [_Depends(0)] * len(operations)
    for k, op in enumerate(operations):
        handles = frozenset(id(tensor) for tensor in op.inputs if tensor.dtype == tf.resource)
        kinds = {op.type} | kinds_in(op.node_def, functions)
        if handles & state_handles:
            states[k] = handles & state_handles
        if k in states or _is_random(kinds):
            random.add(k)
        own = _Depends(0)
        if k in is_input:
            own |= _Depends.INPUT | _Depends.VALUE
        if k in is_label or handles & written or _has_hidden_state(kinds):
            own |= _Depends.CHANGE
        if k in random:
            own |= _Depends.DRAW
        if handles - state_handles:
            own |= _Depends.WEIGHT
        depends[k] = _with_sources(own, op.type, [depends[position[tensor.op.name]] for tensor in op.inputs])
    everything = range(len(operations))
    moving = {k for k in everything if _Depends.CHANGE in depends[k]}
    frozen = {k for k in everything if _Depends.INPUT in depends[k]} - moving
    unstored = {k for k in frozen if _Depends.VALUE not in depends[k] or _Depends.DROPOUT in depends[k]}
    return FrozenOps(operations, frozen, moving, random, unstored, states)


def _with_sources(own: _Depends, kind: str, sources: Sequence[_Depends]) -> _Depends:
    """Return what an op of type `kind` depends on, by itself and by the ops whose results it takes."""
    found = own | functools.reduce(operator.or_, sources, _Depends(0))
    if kind in _SHAPES:
        return own | found & (_Depends.INPUT | _Depends.CHANGE)

    def any_source(has: _Depends, lacks: _Depends) -> bool:
        return any(has in source and not source & lacks for source in sources)

    # Features times a drawn mask are dropout: stored, every cached step would see the same draw. What follows
    # is like that up to the next weight; results behind that are stored like others.
    if _Depends.WEIGHT in own or any_source(_Depends.WEIGHT, _Depends.VALUE):
        return found & ~_Depends.DROPOUT
    drawn = _Depends.DRAW in own or any_source(_Depends.DRAW, _Depends.WEIGHT)
    if drawn and any_source(_Depends.WEIGHT | _Depends.VALUE, _Depends(0)):
        found |= _Depends.DROPOUT
    return found


def _is_random(kinds: Set[str]) -> bool:
    return any(name in kind and not kind.startswith("Stateless") for kind in kinds for name in _RANDOM)


def _has_hidden_state(kinds: Set[str]) -> bool:
    """Return whether results may depend on a state that is neither in a variable nor of random numbers."""
    return any(
        kind not in (*READS, *_STATELESS_KINDS, *_RUNS_FUNCTIONS)
        and not kind.startswith(("Assign", "Resource", "TensorList"))
        and not _is_random({kind})
        and op_def_registry.get(kind) is not None
        and op_def_registry.get(kind).is_stateful
        for kind in kinds
    )


@dataclass
class Cut:
    """A cut through the frozen part of a step; ops are positions."""

    tensors: List[tf.Tensor]  # stored of each example, in the order of the graph
    recomputed: Set[int]  # frozen ops that a cached step computes again
    done_once: Set[int]  # frozen ops that it does not


def last_frozen_tensors(ops: FrozenOps, needed: Set[int], storable: Callable[[tf.Tensor], bool]) -> Cut:
    """Find the cut that stores what the rest of the step, the ops `needed`, reads of the frozen part.

    What is not `storable` is computed again from what is, down to the inputs, which always are.
    """
    barred: Set[int] = set(ops.unstored)  # nothing of these ops may be stored
    while True:
        cut = _cut_behind(ops, needed, lambda k, t: k not in barred and storable(t))  # noqa: B023
        # Random numbers that both parts would draw: the cached step would draw others than were cached.
        cached = ops.upstream({ops.position[tensor.op.name] for tensor in cut.tensors})
        stored = {id(tensor) for tensor in cut.tensors}
        torn = ops.random & cached & ops.upstream(needed | cut.recomputed, given=stored)
        if not torn:
            return cut
        barred |= ops.downstream(torn)


def _cut_behind(ops: FrozenOps, needed: Set[int], kept: Callable[[int, tf.Tensor], bool]) -> Cut:
    """Return the cut that stores the last tensors that are `kept`, by their op and themselves."""
    inputs = {k for k in ops.frozen if ops.operations[k].type == "Placeholder"}

    def computed_for(k: int) -> Set[int]:
        read = [(ops.position[tensor.op.name], tensor) for tensor in ops.operations[k].inputs]
        return {j for j, tensor in read if j in ops.frozen - inputs and not kept(j, tensor)}

    run = reached(needed, computed_for)
    names = {ops.operations[k].name for k in run}
    stored = [
        tensor
        for k in sorted(ops.frozen - run)
        for tensor in ops.operations[k].outputs
        if any(reader.name in names for reader in tensor.consumers())
    ]
    return Cut(stored, run & ops.frozen, ops.frozen - run - inputs)
