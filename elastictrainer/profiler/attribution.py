"""Graph to tensors: which selections make each op of a training step run."""

from dataclasses import dataclass
from typing import Any, Dict, List, Sequence, Tuple

FORWARD = "forward"
BACKWARD = "backward"
UPDATE = "update"
NEVER = "never"


@dataclass(frozen=True)
class Charge:
    """The op or tensors that an op's time is charged to.

    Attributes:
        kind: FORWARD (runs in every step), BACKWARD (runs when a member's gradient is wanted), UPDATE (runs
            when a member is updated) or NEVER (in the graph, but nothing needs it: a gradient of the input,
            for example).
        members: for BACKWARD and UPDATE the tensors S(op) any of which makes it run, for FORWARD the tensors
            R(op) it depends on; as bits, tensor i being bit i.
    """

    kind: str
    members: int


def attribute(
    operations: Sequence[Any], loss: Any, gradients: Sequence[Any], handles: Sequence[Any]
) -> Tuple[List[str], List[Charge]]:
    """Charge every op of a traced training step by plain reachability in its graph, without layer names.

    Args:
        operations: the graph's ops, producers before consumers.
        loss: the loss tensor.
        gradients: per trainable tensor its gradient: a tensor, an IndexedSlices, or None where there is none.
        handles: per trainable tensor the graph's tensor of its resource handle, or None where the graph has
            none.

    Returns:
        The op names and their charges, in the order of `operations`.
    """
    position = {op.name: k for k, op in enumerate(operations)}
    inputs = [[position[t.op.name] for t in op.inputs if t.op.name in position] for op in operations]
    count = len(operations)

    def spread_to_inputs(labels: List[int]) -> List[int]:
        for k in range(count - 1, -1, -1):
            if labels[k]:
                for source in inputs[k]:
                    labels[source] |= labels[k]
        return labels

    is_forward = [0] * count
    is_forward[position[loss.op.name]] = 1
    spread_to_inputs(is_forward)

    # S(op): the tensors whose gradient depends on it.
    wanted_by = [0] * count
    # By tensor: one op may yield the gradients of several variables.
    gradient_at: Dict[Tuple[str, int], int] = {}
    for i, gradient in enumerate(gradients):
        for tensor in gradient_tensors(gradient):
            gradient_at[key_of(tensor)] = gradient_at.get(key_of(tensor), 0) | 1 << i
            wanted_by[position[tensor.op.name]] |= 1 << i
    spread_to_inputs(wanted_by)

    depends = depends_on(operations, handles)  # R(op)

    # Updates: ops with a side effect on a tensor's handle; else ops with a side effect that follow its
    # gradient; and what these need.
    handle_bit = {handle.op.name: 1 << i for i, handle in enumerate(handles) if handle is not None}
    follows = [0] * count
    updates = [0] * count
    for k, op in enumerate(operations):
        written = 0
        for tensor in op.inputs:
            producer = position.get(tensor.op.name)
            if key_of(tensor) in gradient_at:
                follows[k] |= gradient_at[key_of(tensor)]
            elif producer is not None and not is_forward[producer]:
                follows[k] |= follows[producer]
            written |= handle_bit.get(tensor.op.name, 0)
        if not is_forward[k] and not wanted_by[k] and _has_side_effect(op):
            updates[k] = written if written else follows[k]
    spread_to_inputs(updates)

    alive = spread_to_inputs([int(_has_side_effect(op)) for op in operations])
    charges = []
    for k in range(count):
        if is_forward[k]:
            charges.append(Charge(FORWARD, depends[k]))
        elif wanted_by[k]:
            charges.append(Charge(BACKWARD, wanted_by[k]))
        elif updates[k]:
            charges.append(Charge(UPDATE, updates[k]))
        else:  # metrics and counters run in every step
            charges.append(Charge(FORWARD if alive[k] else NEVER, 0))
    return [op.name for op in operations], charges


def depends_on(operations: Sequence[Any], handles: Sequence[Any]) -> List[int]:
    """Return the tensors R(op) that each op depends on, as bits: tensor i is bit i.

    `operations` and `handles` are as for `attribute`; a handle may be of an op that is not there.
    """
    found: Dict[str, int] = dict.fromkeys((op.name for op in operations), 0)
    for i, handle in enumerate(handles):
        if handle is not None and handle.op.name in found:
            found[handle.op.name] |= 1 << i
    for op in operations:
        for tensor in op.inputs:
            found[op.name] |= found.get(tensor.op.name, 0)
    return list(found.values())


def gradient_tensors(gradient: Any) -> List[Any]:
    """Return the tensors a gradient is made of: one, the two of an IndexedSlices, or none."""
    if gradient is None:
        return []
    if hasattr(gradient, "indices"):
        return [gradient.values, gradient.indices]
    return [gradient]


def key_of(tensor: Any) -> Tuple[str, int]:
    """Return the op's name and the number of its output, which tell a tensor from all others."""
    return tensor.op.name, getattr(tensor, "value_index", 0)


def _has_side_effect(op: Any) -> bool:
    """Return whether TensorFlow runs the op for its effect, not for its result."""
    return bool(op.op_def.is_stateful) and op.type not in ("ReadVariableOp", "Placeholder")
