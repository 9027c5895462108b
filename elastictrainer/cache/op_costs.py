"""The cost of each op of a forward pass."""

from typing import Any, Callable, Dict, List, Optional, Sequence

import tensorflow as tf

from elastictrainer.profiler.charging import flops_of
from elastictrainer.profiler.profile import Profile
from elastictrainer.steps.graph_library import LOOPS, GraphLibrary

OpCost = Callable[[Any], float]  # from an op to its milliseconds

TYPICAL_MS_PER_MB = 0.2  # to read, on a laptop's processor; only its ratio to the next one decides anything
_TYPICAL_FLOPS_PER_MS = 2e7  # the same for computing
_MEMORY = 10.0  # FLOPs in the time of writing one number: what has no FLOPs, such as a copy, takes time too
_LOOP = 1e12  # the FLOPs of a loop, which nobody counts: it has its group's time nearly to itself
_FREE = ("Placeholder", "VarHandleOp", "ReadVariableOp", "Identity", "Const")  # nothing is computed or copied


def op_costs(
    profile: Optional[Profile],
    operations: Sequence[Any],
    weights: Sequence[float],
    members: Sequence[int],
) -> OpCost:
    """Return the function from an op to its cost: its group's measured time, shared out by FLOPs.

    It is 0 for an op that the graph does not have, such as one that asks for a shape.

    Args:
        profile: the profile; None: typical times by FLOPs alone.
        operations: of the graph of a step.
        weights: of each, see `weights_of`.
        members: of each, the tensors that it depends on, as bits.
    """
    if profile is None:
        rates = dict.fromkeys(members, 1 / _TYPICAL_FLOPS_PER_MS)
    else:
        group_ms = {sum(1 << i for i in group): ms for group, ms in profile.forward.sets()}
        # A convolution that runs fused with the bias behind it is measured with that: the profile has no
        # group for it alone, and it shares the time of the least group that has all its tensors.
        by_size = sorted(group_ms, key=lambda group: (bin(group).count("1"), group))
        holds = {
            bits: next((group for group in by_size if bits & group == bits), bits) for bits in set(members)
        }
        members = [holds[bits] for bits in members]
        group_weight: Dict[int, float] = {}
        for bits, weight in zip(members, weights):
            group_weight[bits] = group_weight.get(bits, 0.0) + weight
        mean = profile.forward.amount.sum() / max(1e-30, sum(weights))
        rates = {
            bits: group_ms[bits] / max(1e-30, weight) if bits in group_ms else mean
            for bits, weight in group_weight.items()
        }
    cost_ms = {op.name: rates[bits] * weight for op, bits, weight in zip(operations, members, weights)}
    return lambda op: cost_ms.get(op.name, 0.0)


def weights_of(operations: Sequence[Any]) -> List[float]:
    """Return the cost of each op, in FLOPs."""
    weights: List[float] = []
    functions = GraphLibrary(operations[0].graph.as_graph_def().library) if operations else None
    for op, count in zip(operations, flops_of(operations)):
        if op.type in _FREE:
            weights.append(0.0)
            continue
        if functions and not {op.type, *functions.kinds_in(op.node_def)}.isdisjoint(LOOPS):
            weights.append(_LOOP)
            continue
        sizes = [tensor.shape.num_elements() or 0 for tensor in op.outputs if tensor.dtype != tf.resource]
        weights.append(float(count) + _MEMORY * sum(sizes))
    return weights
