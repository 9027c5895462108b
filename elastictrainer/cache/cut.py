"""The cut of a step into two parts: which tensors of each example are stored, and which are recomputed."""

from dataclasses import dataclass
from typing import Any, Callable, List, Set, Tuple

import numpy as np

from elastictrainer.cache.frozen_ops import FrozenOps

_NEVER = 10**9  # a cost that no cut has: SciPy computes with 32-bit integers
_TOTAL = 10**8  # what all costs add up to; a share of 1e-8 of them is one


@dataclass
class Cut:
    """A cut through the frozen part of a step.

    Attributes:
        tensors: the tensors stored of each example, in the order of the graph.
        recomputed: positions of frozen ops that a cached step computes again.
        done_once: positions of frozen ops that it does not.
    """

    tensors: List[Any]
    recomputed: Set[int]
    done_once: Set[int]


def least_cost_cut(
    ops: FrozenOps,
    needed: Set[int],
    op_cost: Callable[[Any], float],
    tensor_cost: Callable[[Any], float],
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
    op_cost: Callable[[Any], float],
    tensor_cost: Callable[[Any], float],
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
