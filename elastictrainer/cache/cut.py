"""Where a training step is cut: which of its ops are frozen, and which tensors of each example are stored.

The cut goes by ops, not by layers: layers that train behind frozen ones may begin in the middle of one, and
subclassed networks, recurrent loops and attention have no layers to cut at.

The least-cost cut is there for caches that would not fit: where there is room, it gains nothing over storing
the last frozen tensors. Above four tensors of MobileNetV2 both stored the same 16 to 263 kB an example.
"""

import enum
import functools
import operator
from dataclasses import dataclass
from typing import AbstractSet, Any, Callable, Dict, FrozenSet, List, Sequence, Set, Tuple

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from elastictrainer.cache.storage import Column
from elastictrainer.steps.graph_library import CALLS, LOOPS, GraphLibrary, reached
from elastictrainer.steps.graphs import READS, written_by

OpCost = Callable[[tf.Operation], float]  # from an op to its milliseconds

_SHAPES = ("Shape", "ShapeN", "Size", "Rank")  # their result says nothing about the values
_STATELESS_KINDS = ("Placeholder", "VarHandleOp", "NoOp")
_RUNS_FUNCTIONS = (*CALLS, *LOOPS, "If", "Case")
_RANDOM = ("Random", "Multinomial", "TruncatedNormal", "RngReadAndSkip", "RngSkip")
_NEVER = 10**9  # a cost that no cut has: SciPy computes with 32-bit integers
_TOTAL = 10**8  # what all costs add up to; a share of 1e-8 of them is one


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
    """Return the dtype that numbers of `dtype` are stored in: wide ones in `floats`; bfloat16 too, which
    NumPy lacks.
    """
    narrowed = dtype in (tf.float32, tf.float64) and floats == "float16"
    return floats if narrowed or dtype == tf.bfloat16 else str(dtype.name)


def row_bytes(tensor: tf.Tensor, floats: str) -> int:
    """Return bytes of a storable tensor's row as it is stored."""
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
    """The ops of a step, by what they depend on. Sets hold positions in `operations`.

    Attributes:
        operations: of the step, producers before consumers.
        frozen: ops that depend on the inputs and on nothing that the step changes: their result is the same
            for the same augmented copy of an example. Placeholders of inputs are among them.
        moving: ops that depend on a variable that the step changes, or on the labels.
        random: those that draw random numbers from a state in a variable, or in themselves.
        unstored: frozen ops whose result is not stored: it says nothing about the inputs' values, as shapes
            and dropout's masks do; or it has not one row for each example; or it mixes features with random
            numbers, as dropout does, up to the next weight.
        random_states: ids of the random states' handles that an op takes, by op.
    """

    operations: List[tf.Operation]
    frozen: Set[int]
    moving: Set[int]
    random: Set[int]
    unstored: Set[int]
    random_states: Dict[int, FrozenSet[int]]

    @functools.cached_property
    def position(self) -> Dict[str, int]:
        """Return each op's place in `operations`, by its name."""
        return {op.name: k for k, op in enumerate(self.operations)}

    def upstream(
        self, ends: Set[int], without: AbstractSet[int] = frozenset(), given: AbstractSet[int] = frozenset()
    ) -> Set[int]:
        """Return the ops that `ends` are computed by, themselves included.

        Args:
            ends: positions.
            without: positions of ops that are left out, with all before them.
            given: ids of tensors that exist already.
        """

        def before(k: int) -> Set[int]:
            wanted = (tensor for tensor in self.operations[k].inputs if id(tensor) not in given)
            return {self.position[tensor.op.name] for tensor in wanted} - without

        return reached(ends, before)

    def downstream(self, starts: Set[int]) -> Set[int]:
        """Return the positions of the ops `starts` and of all that depend on them."""

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
    """Sort the ops of a training step by plain reachability.

    What the step writes to, moves: trained tensors, their slots, counters, metrics, and statistics of batch
    normalisation in training. A random state is the exception: an op that draws from it is done once where
    all else that it needs is.

    Args:
        operations: of one training step, in a tf.function's graph; producers before consumers.
        library: of functions that they call, `GraphDef.library`.
        inputs, labels: placeholders.
        random_states: the graph's handles of variables that hold the state of random numbers.
    """
    position = {op.name: k for k, op in enumerate(operations)}
    state_handles = {id(handle) for handle in random_states}
    written = {id(handle) for op in operations for handle in written_by(op)} - state_handles
    functions = GraphLibrary(library)
    is_input = {position[tensor.op.name] for tensor in inputs}
    is_label = {position[tensor.op.name] for tensor in labels}
    random: Set[int] = set()
    states: Dict[int, FrozenSet[int]] = {}
    depends = [_Depends(0)] * len(operations)
    for k, op in enumerate(operations):
        handles = frozenset(id(tensor) for tensor in op.inputs if tensor.dtype == tf.resource)
        kinds = {op.type} | functions.kinds_in(op.node_def)
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
    """A cut through the frozen part of a step.

    Attributes:
        tensors: the tensors stored of each example, in the order of the graph.
        recomputed: positions of frozen ops that a cached step computes again.
        done_once: positions of frozen ops that it does not.
    """

    tensors: List[tf.Tensor]
    recomputed: Set[int]
    done_once: Set[int]


def least_cost_cut(
    ops: FrozenOps,
    needed: Set[int],
    op_cost: OpCost,
    tensor_cost: Callable[[tf.Tensor], float],
) -> Cut:
    """Find the cut with which a cached step costs least.

    Each tensor of the frozen part that the rest of the step reads is stored or computed again from others,
    down to the inputs.

    Args:
        ops: of the step.
        needed: positions of ops outside the frozen part that a cached step runs.
        op_cost: ms to compute an op again.
        tensor_cost: ms to read a tensor of the store; infinite where it cannot be stored.
    """
    barred: Set[int] = set()  # nothing of these ops may be stored
    while True:
        cut = _minimum_cut(ops, needed, op_cost, tensor_cost, barred)
        # Random numbers that both parts would draw: the cached step would draw others than were cached.
        torn = _drawn_twice(ops, needed, cut)
        if not torn:
            return cut
        barred |= ops.downstream(torn)


def _minimum_cut(
    ops: FrozenOps,
    needed: Set[int],
    op_cost: OpCost,
    tensor_cost: Callable[[tf.Tensor], float],
    barred: Set[int],
) -> Cut:
    """Find the minimum cut of a network in which every op and every tensor is a node.

    An op on the sink's side is computed again, a tensor on that side is there in the cached step. Edges: from
    the source to an op, what computing it again costs; from an op to its tensor, what storing that costs;
    from a tensor to an op that reads it, and from a needed tensor to the sink: never to be cut.
    """
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    frozen = sorted(ops.frozen)
    tensors = [tensor for k in frozen for tensor in ops.operations[k].outputs]
    op_node = {k: 2 + i for i, k in enumerate(frozen)}
    tensor_node = {id(t): 2 + len(frozen) + i for i, t in enumerate(tensors)}
    is_source = {k for k in frozen if ops.operations[k].type == "Placeholder"}
    computing = {k: np.inf if k in is_source else op_cost(ops.operations[k]) for k in frozen}
    storing = {}
    for k in frozen:
        forbidden = k in barred or k in ops.unstored
        for tensor in ops.operations[k].outputs:
            storing[id(tensor)] = np.inf if forbidden else tensor_cost(tensor)
    costs = np.array([*computing.values(), *storing.values()], float)
    total = costs[np.isfinite(costs)].sum()
    unit = total / _TOTAL if total else 1.0

    # SciPy's flow takes 32-bit integers: costs become shares of 1e-8 of the total.
    def capacity(cost: float) -> int:
        return _NEVER if not np.isfinite(cost) else max(1, round(cost / unit))  # a tie: store less, earlier

    source, sink = 0, 1
    edges: List[Tuple[int, int, int]] = []
    for k in frozen:
        edges.append((source, op_node[k], capacity(computing[k])))
        for tensor in ops.operations[k].outputs:
            edges.append((op_node[k], tensor_node[id(tensor)], capacity(storing[id(tensor)])))
            readers = {ops.position.get(reader.name) for reader in tensor.consumers()}
            if readers & needed:
                edges.append((tensor_node[id(tensor)], sink, _NEVER))
            edges += [(tensor_node[id(tensor)], op_node[r], _NEVER) for r in readers if r in op_node]
    rows, columns, capacities = (np.array(column) for column in zip(*edges)) if edges else ([], [], [])
    count = 2 + len(frozen) + len(tensors)
    network = csr_matrix((capacities, (rows, columns)), shape=(count, count), dtype=np.int32)
    # By max-flow min-cut, the nodes that residual capacity reaches from the source are its side of the cut.
    residual = network - maximum_flow(network, source, sink).flow
    residual.data[residual.data < 0] = 0
    residual.eliminate_zeros()
    before = set(breadth_first_order(residual, source, return_predecessors=False).tolist())
    recomputed = {k for k in frozen if op_node[k] not in before}
    # The cut edges from an op to its tensor: the op has run, and the cached step needs the tensor.
    stored = [
        tensor
        for k in frozen
        for tensor in ops.operations[k].outputs
        if tensor_node[id(tensor)] not in before and op_node[k] in before
    ]
    return Cut(stored, recomputed, set(frozen) - recomputed - is_source)


def _drawn_twice(ops: FrozenOps, needed: Set[int], cut: Cut) -> Set[int]:
    """Return the ops of random numbers that both a stored tensor and the cached step would draw from."""
    cached = ops.upstream({ops.position[tensor.op.name] for tensor in cut.tensors})
    stored = {id(tensor) for tensor in cut.tensors}
    return ops.random & cached & ops.upstream(needed | cut.recomputed, given=stored)
