"""Graph to memory: what a training step holds when its forward pass ends, by the gradients that need it."""

from collections import Counter, defaultdict
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

from elastictrainer.profiler.attribution import BACKWARD, FORWARD, NEVER, Charge, key_of

# Ops whose output is their input's memory.
_ALIASES = ("Identity", "IdentityN", "Reshape", "Squeeze", "ExpandDims", "StopGradient", "PreventGradient")
# Ops whose output takes no memory of the step's own: weights, constants, the minibatch.
_THERE_ALREADY = ("ReadVariableOp", "Const", "Placeholder", "VarHandleOp")


class Held(NamedTuple):
    """The memory that a traced step holds; sets of tensors are bits.

    Attributes:
        sizes: bytes held at the end of the forward pass, by the tensors whose gradients need them.
        ops: the number of ops, by the tensors any of which makes them run; 0: they run in every step.
        forward: the most bytes that the forward pass alone holds at once.
        unknown: number of held tensors whose size the graph does not tell.
    """

    sizes: Dict[int, float]
    ops: Dict[int, int]
    forward: float
    unknown: int


def held_memory(
    operations: Sequence[Any], charges: Sequence[Charge], batch: int, read_by_calls: Mapping[str, List[int]]
) -> Held:
    """Return the tensors that a traced training step holds, by plain reachability in its graph.

    An op that needs forward results alone has run when the forward pass ends, wherever it stands: its result
    is held then instead of what it is made from. (Shapes, of which many gradients want nothing else.)

    Args:
        operations: the graph's ops, producers before consumers.
        charges: of these ops; see `attribution.attribute`.
        batch: examples of a minibatch: the first dimension where a shape does not tell.
        read_by_calls: of a backward call by name, for each input the tensors whose gradients need it.
    """
    depth = _depths(operations)
    backward = [(op, charge) for op, charge in zip(operations, charges) if charge.kind == BACKWARD]
    # The forward pass ends where the last forward result is made that a backward op reads.
    names = {op.name for op, _ in backward}
    read = (tensor.op.name for op, _ in backward for tensor in op.inputs)
    ends = max((depth[name] for name in read if name not in names), default=0)
    wanted_by: Dict[Tuple[str, int], int] = defaultdict(int)
    tensors: Dict[Tuple[str, int], Any] = {}
    for op, charge in backward:
        for tensor, wanted in zip(op.inputs, read_by_calls.get(op.name, [charge.members] * len(op.inputs))):
            # Held: made before that end, read behind it. An alias counts as the tensor that has the memory.
            if depth[op.name] > ends >= depth[tensor.op.name]:
                tensor = _owner(tensor)
                wanted_by[key_of(tensor)] |= wanted
                tensors[key_of(tensor)] = tensor
    sizes: Dict[int, float] = defaultdict(float)
    unknown = 0
    for key, wanted in wanted_by.items():
        size = _bytes_of(tensors[key], batch)
        unknown += size is None and bool(wanted)
        if size and wanted:
            sizes[wanted] += size
    ops = Counter(
        0 if charge.kind == FORWARD else charge.members for charge in charges if charge.kind != NEVER
    )
    return Held(dict(sizes), dict(ops), _most_of_forward(operations, charges, batch), unknown)


def _depths(operations: Sequence[Any]) -> Dict[str, int]:
    """Return, by the name of an op, how many ops run one after the other up to it."""
    depths: Dict[str, int] = {}
    for op in operations:
        before = [tensor.op.name for tensor in op.inputs] + [other.name for other in op.control_inputs]
        # The graph's output waits for an op that is made after it, and has no depth yet.
        depths[op.name] = 1 + max((depths[name] for name in before if name in depths), default=0)
    return depths


def _most_of_forward(operations: Sequence[Any], charges: Sequence[Charge], batch: int) -> float:
    """Return the most bytes that the forward ops hold at once, if nothing else reads them."""
    run = [op for op, charge in zip(operations, charges) if charge.kind == FORWARD]
    # In the order of the graph: add each output when it is made, free it after its last reader.
    last_use = {key_of(_owner(tensor)): k for k, op in enumerate(run) for tensor in op.inputs}
    freed: Dict[int, float] = defaultdict(float)
    now = most = 0.0
    for k, op in enumerate(run):
        for tensor in op.outputs:
            if op.type not in _ALIASES:
                size = _bytes_of(tensor, batch) or 0.0
                now += size
                freed[last_use.get(key_of(tensor), k)] += size
        most = max(most, now)
        now -= freed[k]
    return most


def _bytes_of(tensor: Any, batch: int) -> Any:
    """Return bytes that a symbolic tensor takes of a step's memory; None where the graph does not tell."""
    if tensor.op.type in _THERE_ALREADY or tensor.dtype.name == "resource":
        return 0.0
    if tensor.op.type == "FusedBatchNormV3" and tensor.value_index == 5:  # empty but on a GPU
        return 0.0
    if tensor.dtype.name in ("variant", "string") or tensor.shape.rank is None:
        return None
    size = float(tensor.dtype.size)
    for axis, length in enumerate(tensor.shape.as_list()):
        if length is None and axis:
            return None
        size *= batch if length is None else length
    return size


def _owner(tensor: Any) -> Any:
    """Return the tensor whose memory `tensor` is."""
    while tensor.op.type in _ALIASES and tensor.op.inputs:
        tensor = tensor.op.inputs[tensor.value_index if tensor.op.type == "IdentityN" else 0]
    return tensor
