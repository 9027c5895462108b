"""The model's forward pass, analysed once for all selections of a run: what its ops cost, and which of them
mix the examples of a minibatch and so cannot be cached one by one.
"""

import functools
from dataclasses import replace
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np
import tensorflow as tf

from elastictrainer.cache.cut import OpCost, is_storable, row_bytes
from elastictrainer.cache.split import TracedStep
from elastictrainer.profiler.charging import flops_of, sums
from elastictrainer.profiler.profile import Profile
from elastictrainer.steps.compiled_step import CompiledStep
from elastictrainer.steps.graph_library import LOOPS, functions_of, kinds_in
from elastictrainer.steps.graphs import flat, written_by
from elastictrainer.steps.keras_compat.variables import Variable, random_states
from elastictrainer.steps.objective import Minibatch, Objective
from elastictrainer.steps.snapshot import preserve_variables

TYPICAL_MS_PER_MB = 0.2  # to read, on a laptop's processor; only its ratio to the next one decides anything
_TYPICAL_FLOPS_PER_MS = 2e7  # the same for computing
_MEMORY = 10.0  # FLOPs in the time of writing one number: what has no FLOPs, such as a copy, takes time too
_LOOP = 1e12  # the FLOPs of a loop, which nobody counts: it has its group's time nearly to itself
_FREE = ("Placeholder", "VarHandleOp", "ReadVariableOp", "Identity", "Const")  # nothing is computed or copied

# What an op makes of the examples of a minibatch: a row of each one alone; rows that depend on the others;
# or another number of rows.
ALIKE, MIXES, FOLDS = "alike", "mixes", "folds"
_HELD = 64e6  # bytes of rows that are compared at once: a run may have a limit of memory
_ALIKE = 1e-2  # of the largest number: far more than rounding, far less than another example's features


class ForwardPass:
    """The ops of a forward pass: what each takes, and whether it mixes the examples of a minibatch.

    The step of every selection begins with these ops, by the same names.
    """

    def __init__(
        self,
        objective: Objective,
        optimizer: tf.keras.optimizers.Optimizer,
        minibatch: Minibatch,
        full: Optional[CompiledStep] = None,
    ):
        """Take a full-sized minibatch; the others are as for CompiledStep."""
        self._model = objective.model
        step = CompiledStep(objective, optimizer, [], full=full)
        # In a graph of its own, which knows the size of the minibatch: costs depend on it.
        step.trace(*minibatch)
        # It trains nothing: all that can be frozen is.
        self.traced = TracedStep(step.in_own_graph(), random_states(objective.model))
        self.members = self.traced.members(objective.model.trainable_variables)
        self.mixing: Dict[str, str] = {}  # ALIKE, MIXES or FOLDS of ops by name
        stop_where_examples_mix(self.traced, minibatch, self.mixing)
        self._weights = weights_of(self.traced.ops.operations)

    @functools.cached_property
    def changing(self) -> List[Variable]:
        """Return the variables, not weights, that steps change, such as the statistics of a norm."""
        written = {id(handle) for op in self.traced.ops.operations for handle in written_by(op)}
        written -= {id(self.traced.handle(v)) for v in random_states(self._model)}  # weights of Keras 3
        return [v for v in self._model.non_trainable_variables if id(self.traced.handle(v)) in written]

    def features(self, kernel: Variable) -> Optional[str]:
        """Return the name of the tensor that the dense layer of `kernel` takes, before dropout.

        None where no step's graph shows it, or where it is another one in inference mode: behind batch
        normalisation that trains its statistics.
        """
        if self.changing:
            return None
        operations = self.traced.ops.operations
        weight = self.traced.handle(kernel)
        for op in operations:
            if op.type == "MatMul" and any(tensor is weight for tensor in op.inputs[1].op.inputs):
                tensor = _before_dropout(op.inputs[0])
                return tensor.name if tensor.shape.rank == 2 else None
        return None

    def op_cost(self, profile: Optional[Profile]) -> OpCost:
        return op_costs(profile, self.traced.ops.operations, self._weights, self.members)


def _before_dropout(tensor: tf.Tensor) -> tf.Tensor:
    """Return the input of the dropout that made `tensor`: by chance it selects a scaled one, or zeros.

    A head in float32 casts what a dropout in bfloat16 makes.
    """
    while True:
        if tensor.op.type in ("Identity", "Cast"):
            tensor = tensor.op.inputs[0]
        elif tensor.op.type in ("SelectV2", "Select") and _is_drawn(tensor.op.inputs[0]):
            tensor = tensor.op.inputs[1]
            if tensor.op.type == "Mul":
                tensor = next(t for t in tensor.op.inputs if t.shape.rank)  # the other one is the scale
        else:
            return tensor


def _is_drawn(tensor: tf.Tensor) -> bool:
    """Return whether a condition compares random numbers, which may be scaled, with something."""
    while tensor.op.type in ("GreaterEqual", "Mul", "AddV2", "Cast", "Identity"):
        tensor = tensor.op.inputs[0]
    return "Random" in tensor.op.type


def op_costs(
    profile: Optional[Profile],
    operations: Sequence[tf.Operation],
    weights: Sequence[float],
    members: Sequence[int],
) -> OpCost:
    """Return the function from an op to its cost: its group's measured time, shared out by FLOPs.

    It is 0 for an op that the graph does not have, such as one that asks for a shape. For each of the
    `operations` there are a weight, see `weights_of`, and as bits the `members` that it depends on. Without a
    profile it is by typical times.
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
        mean = profile.forward.amount.sum() / max(1e-30, sum(weights))
        rates = {
            bits: group_ms[bits] / max(1e-30, weight) if bits in group_ms else mean
            for bits, weight in sums(zip(members, weights)).items()
        }
    cost_ms = {op.name: rates[bits] * weight for op, bits, weight in zip(operations, members, weights)}
    return lambda op: cost_ms.get(op.name, 0.0)


def weights_of(operations: Sequence[tf.Operation]) -> List[float]:
    """Return the cost of each op, in FLOPs."""
    weights: List[float] = []
    functions = functions_of(operations[0].graph.as_graph_def().library) if operations else {}
    for op, count in zip(operations, flops_of(operations)):
        if op.type in _FREE:
            weights.append(0.0)
            continue
        if not {op.type, *kinds_in(op.node_def, functions)}.isdisjoint(LOOPS):
            weights.append(_LOOP)
            continue
        sizes = [tensor.shape.num_elements() or 0 for tensor in op.outputs if tensor.dtype != tf.resource]
        weights.append(float(count) + _MEMORY * sum(sizes))
    return weights


def stop_where_examples_mix(
    step: TracedStep, minibatch: Minibatch, known: Dict[str, str], held: float = _HELD
) -> None:
    """Leave nothing frozen in `step.ops` that depends on how a minibatch is made up, such as its mean.

    The first example must give the same among the others as among copies of itself. What has not one row for
    each example, as where windows or time steps were made rows, stays frozen but is not stored. `known` has
    ALIKE, MIXES or FOLDS of ops by name, from other steps of the same model; new ops are added. Rows of
    `held` bytes are compared at once.
    """
    ops = step.ops
    inputs = [tf.convert_to_tensor(value) for value in flat(minibatch[0])]
    batch = int(inputs[0].shape[0])
    hidden = ops.random - set(ops.random_states)  # their draws cannot be repeated
    new = [
        tensor
        for k in sorted(ops.frozen - ops.downstream(hidden))
        if ops.operations[k].name not in known
        for tensor in ops.operations[k].outputs
        # An output that nobody reads may be memory that nobody has written, as of normalisation in inference.
        if is_storable(tensor, batch) and tensor.consumers()
    ]
    for tensors in in_parts(new, held) if batch > 1 else ():
        _compare_examples(step, tensors, inputs, known)
    found = {k: known.get(ops.operations[k].name) for k in ops.frozen}
    mixing = {k for k, what in found.items() if what == MIXES}
    folding = {k for k, what in found.items() if what == FOLDS}
    step.ops = replace(ops, frozen=ops.frozen - ops.downstream(mixing), unstored=ops.unstored | folding)


def _compare_examples(
    step: TracedStep, tensors: Sequence[tf.Tensor], inputs: Sequence[tf.Tensor], known: Dict[str, str]
) -> None:
    """Add to `known` how the ops of `tensors` combine examples: ALIKE, MIXES or FOLDS."""
    batch = int(inputs[0].shape[0])
    every, states = step.prefix(tensors)

    @tf.function(autograph=False)
    def first_rows(*values: tf.Tensor) -> Tuple[List[tf.Tensor], List[tf.Tensor]]:
        found = every(*values)
        # A copy of the first row: a slice would keep the memory of all rows.
        return [tf.gather(value, [0]) for value in found], [tf.shape(value)[0] for value in found]

    # The same random numbers in both runs: only the other examples of the minibatch differ.
    with preserve_variables(states) as before:
        among_others, rows = first_rows(*inputs)
        before.restore()
        among_copies, _ = first_rows(*(tf.repeat(value[:1], batch, axis=0) for value in inputs))
    for tensor, one, other, count in zip(tensors, among_others, among_copies, rows):
        alike = _alike(one.numpy(), other.numpy())
        what = MIXES if not alike else ALIKE if count == batch else FOLDS
        if known.get(tensor.op.name, ALIKE) == ALIKE or what == MIXES:  # an op may have several outputs
            known[tensor.op.name] = what


def in_parts(tensors: Sequence[tf.Tensor], most: float) -> Iterator[List[tf.Tensor]]:
    """Divide tensors into parts whose rows have so many bytes: a function holds all that it returns."""
    part: List[tf.Tensor] = []
    held = 0.0
    for tensor in tensors:
        size = row_bytes(tensor, "float32")
        if part and held + size > most:
            yield part
            part, held = [], 0.0
        part.append(tensor)
        held += size
    if part:
        yield part


def _alike(one: np.ndarray, other: np.ndarray) -> bool:
    """Return whether they are equal up to the order in which kernels add up."""
    if np.array_equal(one, other):  # as nearly always
        return True
    one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
    return np.allclose(one, other, rtol=_ALIKE, atol=_ALIKE * max(1e-30, np.abs(one).max(initial=0.0)))
