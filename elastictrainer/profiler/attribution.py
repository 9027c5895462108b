"""Graph to tensors: which selections make each op of a training step run."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Sequence, Set, Tuple

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
    forward = {name for name, needed in _needed(operations, {loss.op.name: 1}).items() if needed}
    # By tensor: one op may yield the gradients of several variables.
    gradient_of: Dict[Tuple[str, int], int] = defaultdict(int)
    wanted: Dict[str, int] = defaultdict(int)
    for i, gradient in enumerate(gradients):
        for tensor in gradient_tensors(gradient):
            gradient_of[key_of(tensor)] |= 1 << i
            wanted[tensor.op.name] |= 1 << i
    wanted_by = _needed(operations, wanted)  # S(op): the tensors whose gradient depends on it
    updated = _updated(operations, handles, gradient_of, forward)
    of_updates = {op: bits for op, bits in updated.items() if op not in forward and not wanted_by[op]}
    updates = _needed(operations, of_updates)
    alive = _needed(operations, {op.name: 1 for op in operations if _has_side_effect(op)})
    charges = []
    for op, depends in zip(operations, depends_on(operations, handles)):  # R(op)
        if op.name in forward:
            charges.append(Charge(FORWARD, depends))
        elif wanted_by[op.name]:
            charges.append(Charge(BACKWARD, wanted_by[op.name]))
        elif updates[op.name]:
            charges.append(Charge(UPDATE, updates[op.name]))
        else:  # metrics and counters run in every step
            charges.append(Charge(FORWARD if alive[op.name] else NEVER, 0))
    return [op.name for op in operations], charges


def _needed(operations: Sequence[Any], by: Mapping[str, int]) -> Dict[str, int]:
    """Return, for each op by name, what needs it, as bits: what `by` says of it and what follows it."""
    found = {op.name: by.get(op.name, 0) for op in operations}
    for op in reversed(operations):
        if found[op.name]:
            for tensor in op.inputs:
                if tensor.op.name in found:
                    found[tensor.op.name] |= found[op.name]
    return found


def _updated(
    operations: Sequence[Any],
    handles: Sequence[Any],
    gradient_of: Mapping[Tuple[str, int], int],
    forward: Set[str],
) -> Dict[str, int]:
    """Return, for each op with a side effect, the tensors that it updates, as bits.

    These are the tensors whose handle it has; of an op without one, those whose gradient it follows.
    """
    handle_bit = {handle.op.name: 1 << i for i, handle in enumerate(handles) if handle is not None}
    follows: Dict[str, int] = {}
    updated = {}
    for op in operations:
        follows[op.name] = written = 0
        for tensor in op.inputs:
            if key_of(tensor) in gradient_of:
                follows[op.name] |= gradient_of[key_of(tensor)]
            elif tensor.op.name not in forward:
                follows[op.name] |= follows.get(tensor.op.name, 0)
            written |= handle_bit.get(tensor.op.name, 0)
        if _has_side_effect(op):
            updated[op.name] = written or follows[op.name]
    return updated


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
