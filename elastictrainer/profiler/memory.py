"""The memory of a training step: what it keeps resident under a selection, told by its graph. NumPy only."""

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import Dict, List, Mapping, Sequence, Tuple

import numpy as np

from elastictrainer.profiler.attribution import BACKWARD, FORWARD, NEVER, Charge, Op, Tensor, key_of
from elastictrainer.profiler.cost_groups import CostGroups, Json, Mask, Numbers

# Bytes of an op in a graph that has run: TensorFlow's, whatever the network is.
_PER_OP = 14e3
# Bytes of threads and of what kernels set up at the first step, oneDNN's 6 to 10 MB of it; and the
# share by which kernels' own buffers, gradients and pieces that malloc cannot use exceed the tensors that a
# step holds.
_SET_UP, _MARGIN = 70e6, 0.2
# Ops whose output is their input's memory.
_ALIASES = ("Identity", "IdentityN", "Reshape", "Squeeze", "ExpandDims", "StopGradient", "PreventGradient")
# Ops whose output takes no memory of the step's own: weights, constants, the minibatch.
_THERE_ALREADY = ("ReadVariableOp", "Const", "Placeholder", "VarHandleOp")


@dataclass(frozen=True)
class StepMemory:
    """The memory of a training step on one device, in bytes.

    A step holds, when its forward pass ends, every tensor that a backward op needs which runs under the
    selection: like its time, a sum over groups of tensors.
    """

    held: CostGroups  # forward results of a minibatch, by the tensors whose gradients need them
    graph: CostGroups  # the compiled step itself, by the tensors for which it has the ops; else of none
    always: float  # what any step takes besides
    forward: float  # the most that the forward pass holds while nothing is kept for gradients
    loaded: float  # resident memory of the process without its steps: TensorFlow, weights
    batch: int  # examples of the minibatch
    slots: CostGroups  # the optimizer's, by the tensors that have them once they train

    def step_bytes(self, mask: Mask) -> float:
        """Return the most bytes that a step under `mask` (N,) bool takes above `loaded`."""
        return (
            self._fixed
            + self._constant.active_amount(mask)
            + max(self.forward, self.held.active_amount(mask))
        )

    def total(self, mask: Mask) -> float:
        """Return the resident memory of a process that does nothing but steps under `mask` (N,) bool."""
        return self.loaded + self.step_bytes(mask)

    @property
    def alone(self) -> Numbers:
        """Return (N,) bytes that a step takes which trains this tensor only."""
        held = np.maximum(self.forward, self.held.amount_per_tensor())
        return np.asarray(self._fixed + self._constant.amount_per_tensor() + held)

    @property
    def forward_bytes(self) -> float:
        """Return the bytes that a forward pass takes above `loaded`."""
        return self._fixed + self.forward

    @property
    def graph_bytes(self) -> float:
        return float(self.graph.amount.sum())

    @property
    def groups(self) -> CostGroups:
        """Return the memory that a selection adds: `held`, `graph` and `slots` together."""
        return self.held.joined(self._constant)

    def room(self, limit: float) -> float:
        """Return the bytes that `groups` may have in a process of `limit`; 0: no forward pass fits."""
        left = limit - self.loaded - self._fixed
        return left if left > self.forward else 0.0

    @property
    def _fixed(self) -> float:
        return self.always + self.graph.always

    @property
    def _constant(self) -> CostGroups:
        """Return what a selection adds whatever the size of the minibatch."""
        return self.graph.joined(self.slots)

    def undone(self) -> "StepMemory":
        """Return the memory of steps that undo their updates, and so leave no slots."""
        return replace(self, slots=self.slots.scaled(0.0))

    def for_batch(self, batch: int) -> "StepMemory":
        share = batch / self.batch
        return replace(self, held=self.held.scaled(share), forward=self.forward * share, batch=batch)

    def to_json(self) -> Json:
        groups = {name: getattr(self, name).to_json("bytes") for name in ("held", "graph", "slots")}
        return {**groups, **{name: getattr(self, name) for name in ("always", "forward", "loaded", "batch")}}

    @classmethod
    def from_json(cls, tensors: int, value: Json) -> "StepMemory":
        held, graph, slots = (
            CostGroups.from_json(tensors, value.get(name, []), "bytes") for name in ("held", "graph", "slots")
        )
        always, forward, loaded, batch = (value[name] for name in ("always", "forward", "loaded", "batch"))
        return cls(held, graph, always, forward, loaded, batch, slots)


def step_memory(
    operations: Sequence[Op],
    charges: Sequence[Charge],
    read_by_calls: Mapping[str, List[int]],
    examples: int,
    slots: Sequence[float],
    loaded: float,
) -> StepMemory:
    """Return the memory of a full step by plain reachability in its graph; arguments as of `attribution`.

    An op that needs forward results alone has run when the forward pass ends, wherever it stands: its result
    is held then instead of what it is made from. (Shapes, of which many gradients want nothing else.) The
    number of `examples` is the first dimension where a shape does not tell. `slots` are (N,) bytes of each
    tensor's; so many are `loaded` before the step first runs.
    """
    n, held = len(slots), _held(operations, charges, examples, read_by_calls)
    ops = Counter(0 if c.kind == FORWARD else c.members for c in charges if c.kind != NEVER)
    return StepMemory(
        CostGroups.from_bits(n, held).scaled(1 + _MARGIN),
        CostGroups.from_bits(n, ops).scaled(_PER_OP),
        always=_SET_UP,
        forward=(1 + _MARGIN) * _most_of_forward(operations, charges, examples),
        loaded=loaded,
        batch=examples,
        slots=CostGroups.singletons(slots),
    )


def _held(
    operations: Sequence[Op], charges: Sequence[Charge], batch: int, read_by_calls: Mapping[str, List[int]]
) -> Dict[int, float]:
    """Return the bytes held when the forward pass ends, by the tensors whose gradients need them, as bits."""
    depth = _depths(operations)
    backward = [(op, charge) for op, charge in zip(operations, charges) if charge.kind == BACKWARD]
    # The forward pass ends where the last forward result is made that a backward op reads.
    names = {op.name for op, _ in backward}
    read = (tensor.op.name for op, _ in backward for tensor in op.inputs)
    ends = max((depth[name] for name in read if name not in names), default=0)
    wanted_by: Dict[Tuple[str, int], int] = defaultdict(int)
    tensors: Dict[Tuple[str, int], Tensor] = {}
    for op, charge in backward:
        for tensor, wanted in zip(op.inputs, read_by_calls.get(op.name, [charge.members] * len(op.inputs))):
            # Held: made before that end, read behind it. An alias counts as the tensor that has the memory.
            if depth[op.name] > ends >= depth[tensor.op.name]:
                tensor = _owner(tensor)
                wanted_by[key_of(tensor)] |= wanted
                tensors[key_of(tensor)] = tensor
    sizes: Dict[int, float] = defaultdict(float)
    for key, wanted in wanted_by.items():
        sizes[wanted] += _bytes_of(tensors[key], batch) if wanted else 0.0
    return {wanted: size for wanted, size in sizes.items() if size}


def _depths(operations: Sequence[Op]) -> Dict[str, int]:
    """Return, by the name of an op, how many ops run one after the other up to it."""
    depths: Dict[str, int] = {}
    for op in operations:
        before = [tensor.op.name for tensor in op.inputs] + [other.name for other in op.control_inputs]
        # The graph's output waits for an op that is made after it, and has no depth yet.
        depths[op.name] = 1 + max((depths[name] for name in before if name in depths), default=0)
    return depths


def _most_of_forward(operations: Sequence[Op], charges: Sequence[Charge], batch: int) -> float:
    """Return the most bytes that the forward ops hold at once, if nothing else reads them."""
    run = [op for op, charge in zip(operations, charges) if charge.kind == FORWARD]
    # In the order of the graph: add each output when it is made, free it after its last reader.
    last_use = {key_of(_owner(tensor)): k for k, op in enumerate(run) for tensor in op.inputs}
    freed: Dict[int, float] = defaultdict(float)
    now = most = 0.0
    for k, op in enumerate(run):
        for tensor in op.outputs:
            if op.type not in _ALIASES:
                size = _bytes_of(tensor, batch)
                now += size
                freed[last_use.get(key_of(tensor), k)] += size
        most = max(most, now)
        now -= freed[k]
    return most


def _bytes_of(tensor: Tensor, batch: int) -> float:
    """Return bytes that a symbolic tensor takes of a step's memory; 0 where the graph does not tell."""
    if tensor.op.type in _THERE_ALREADY or tensor.dtype.name in ("resource", "variant", "string"):
        return 0.0
    if tensor.op.type == "FusedBatchNormV3" and tensor.value_index == 5:  # empty but on a GPU
        return 0.0
    if tensor.shape.rank is None:
        return 0.0
    size = float(tensor.dtype.size)
    for axis, length in enumerate(tensor.shape.as_list()):
        if length is None and axis:
            return 0.0
        size *= batch if length is None else length
    return size


def _owner(tensor: Tensor) -> Tensor:
    while tensor.op.type in _ALIASES and tensor.op.inputs:
        tensor = tensor.op.inputs[tensor.value_index if tensor.op.type == "IdentityN" else 0]
    return tensor
