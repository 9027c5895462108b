"""A training step in two parts: the prefix, whose results are cached, and the suffix, which a cached step
runs.
"""

from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple

import numpy as np
import tensorflow as tf

from elastictrainer.profiler.attribution import depends_on
from elastictrainer.reuse.cut import Cut, least_cost_cut
from elastictrainer.reuse.frozen_ops import frozen_ops
from elastictrainer.reuse.storable import is_storable, row_bytes
from elastictrainer.runs import resident
from elastictrainer.steps.graph_part import NotAPart, optimised
from elastictrainer.steps.keras_compat.variables import tf_variables
from elastictrainer.steps.snapshot import preserve_variables
from elastictrainer.steps.step_part import StepPart, flat

# What an op makes of the examples of a minibatch: a row of each one alone; rows that depend on the others;
# or another number of rows.
ALIKE, MIXES, FOLDS = "alike", "mixes", "folds"
_HELD, _HELD_LITTLE = 128e6, 32e6  # bytes of tensors that are compared at once; within a limit of memory
_ALIKE = 1e-2  # of the largest number: far more than rounding, far less than another example's features


class NotCacheable(Exception):
    """The reason why the activations of a selection cannot, or need not, be cached."""


@dataclass
class SplitStep:
    """The two functions that a training step consists of.

    Attributes:
        cut: where it is cut.
        prefix: from the step's inputs, flat, to the values of the cut's tensors, and of others asked for. It
            and the suffix run in a tf.function only, which takes their graphs in.
        suffix: from these and the step's labels, flat, to the loss; it updates what the step updates.
        random_states: the variables that the prefix draws random numbers from.
        fixed: the other variables that it reads: none may change while the cache is used.
    """

    cut: Cut
    prefix: Callable[..., List[tf.Tensor]]
    suffix: Callable[..., tf.Tensor]
    random_states: List[tf.Variable]
    fixed: List[tf.Variable]


class TracedStep:
    """A traced training step, sorted into what is frozen and what moves."""

    def __init__(self, step: StepPart, random_states: Sequence[tf.Variable]):
        """
        Args:
            step: of the selection.
            random_states: the variables that hold the state of the model's random numbers.
        """
        graph: Any = step.source.graph
        internal = {id(outer): inner for outer, inner in graph.captures}
        self._graph, self._step, self._internal = graph, step, internal
        self._states = {
            id(internal[id(v.handle)]): v for v in tf_variables(random_states) if id(v.handle) in internal
        }
        handles = [internal[id(v.handle)] for v in self._states.values()]
        ends = [step.loss.op, *step.effects, *(t.op for t in [*step.inputs, *step.labels])]
        runs = step.source.upstream(op.name for op in ends)
        operations = [op for op in graph.get_operations() if op.name in runs]
        library = step.source.definition.library
        self.ops = frozen_ops(operations, library, step.inputs, step.labels, handles)
        self._position = self.ops.position
        # Ops that run for their effect alone: updates, counters and metrics; and moves of random states.
        moving, random = self.ops.moving, self.ops.random
        must_run = [(self._position[op.name], op) for op in step.effects]
        self._effects = [op for k, op in must_run if k in moving and k not in random]
        self._draws = [op for k, op in must_run if k in random]

    def needed(self, frozen: Optional[Set[int]] = None) -> Set[int]:
        """Return the positions of ops outside the frozen part (or `frozen`) that a cached step runs."""
        frozen = self.ops.frozen if frozen is None else frozen
        ends = {self._position[op.name] for op in [self._step.loss.op, *self._effects]}
        return self.ops.upstream(ends - frozen, frozen)

    def tensor(self, name: str) -> Any:
        """Return the tensor of that name."""
        return self._graph.get_tensor_by_name(name)

    def cut(self, op_cost: Callable[[Any], float], tensor_cost: Callable[[Any], float]) -> Cut:
        """Find the cut with which a cached step costs least; arguments as of `least_cost_cut`."""
        return least_cost_cut(self.ops, self.needed(), op_cost, tensor_cost)

    def members(self, variables: Sequence[Any]) -> List[int]:
        """Return, for each op, the `variables` that it depends on, as bits: variable i is bit i."""
        handles = [self._internal.get(id(variable.handle)) for variable in tf_variables(variables)]
        return depends_on(self.ops.operations, handles)

    def edge_of(self, inside: Set[int]) -> List[Any]:
        """Return the tensors of the ops `inside` that others read, those of placeholders aside."""
        return [
            tensor
            for k in sorted(inside)
            if self.ops.operations[k].type != "Placeholder"
            for tensor in self.ops.operations[k].outputs
            if any(self._position.get(reader.name, -1) not in inside for reader in tensor.consumers())
        ]

    def prefix(self, tensors: Sequence[Any]) -> Tuple[Callable[..., List[tf.Tensor]], List[tf.Variable]]:
        """Make the function from the step's inputs to these tensors' values; returns the random states it
        reads, too.
        """
        cached = self.ops.upstream({self._position[t.op.name] for t in tensors})
        drawn = self._states_read(cached)
        states = [v for state, v in self._states.items() if state in drawn]
        return self._function(self._step.inputs, list(tensors), self._draws_of(drawn)), states

    def updates(self, variables: Sequence[Any]) -> bool:
        """Return whether the step assigns to one of `variables`, as batch normalisation in training does."""
        handles = {self._handle(v) for v in tf_variables(variables) if id(v.handle) in self._internal}
        return any(
            id(tensor) in handles
            for op in self.ops.operations
            if op.type.startswith("Assign")
            for tensor in op.inputs
        )

    def input_of(self, kernel: Any) -> Optional[Any]:
        """Return the (batch, features) tensor that a dense layer multiplies by a kernel, before any dropout.

        None where the graph does not show it.

        Args:
            kernel: the layer's variable, (features, units).
        """
        if id(kernel.handle) not in self._internal:
            return None
        handle = self._handle(kernel)
        for op in self.ops.operations:
            if op.type == "MatMul" and any(id(t) == handle for t in op.inputs[1].op.inputs):
                return _before_dropout(op.inputs[0])
        return None

    def stop_where_examples_mix(
        self, minibatch: Any, known: Optional[Dict[str, str]] = None, held: Optional[float] = None
    ) -> None:
        """Leave nothing frozen that depends on how a minibatch is made up, such as its mean.

        The first example must give the same among the others as among copies of itself. What has not one row
        for each example, as where windows or time steps were made rows, stays frozen but is not stored.

        Args:
            minibatch: inputs and labels of a full size.
            known: ALIKE, MIXES or FOLDS of ops by name, from other steps of the same model; new ops are
                added.
            held: bytes of tensors that are compared at once; None: `most_held`.
        """
        known = {} if known is None else known
        inputs = [tf.convert_to_tensor(value) for value in flat(minibatch[0])]
        batch = int(inputs[0].shape[0])
        hidden = self.ops.random - set(self.ops.random_states)  # their draws cannot be repeated
        new = [
            tensor
            for k in sorted(self.ops.frozen - self.ops.downstream(hidden))
            if self.ops.operations[k].name not in known
            for tensor in self.ops.operations[k].outputs
            if is_storable(tensor, batch)
        ]
        for tensors in in_parts(new, batch, held or most_held()) if batch > 1 else ():
            self._compare_examples(tensors, inputs, known)
        found = {k: known.get(self.ops.operations[k].name) for k in self.ops.frozen}
        mixing = {k for k, what in found.items() if what == MIXES}
        folding = {k for k, what in found.items() if what == FOLDS}
        self.ops = replace(
            self.ops,
            frozen=self.ops.frozen - self.ops.downstream(mixing),
            valueless=self.ops.valueless | folding,
        )

    def _compare_examples(
        self, tensors: Sequence[Any], inputs: Sequence[tf.Tensor], known: Dict[str, str]
    ) -> None:
        """Add to `known` how the ops of `tensors` combine examples: ALIKE, MIXES or FOLDS."""
        batch = int(inputs[0].shape[0])
        every, states = self.prefix(tensors)
        run = tf.function(every, autograph=False)

        def first_rows(values: Sequence[tf.Tensor]) -> Tuple[List[np.ndarray], List[int]]:
            found = run(*values)
            return [value.numpy()[:1].copy() for value in found], [int(value.shape[0]) for value in found]

        # The same random numbers in both runs: only the other examples of the minibatch differ.
        with preserve_variables(states) as restore, optimised(0):
            among_others, rows = first_rows(inputs)
            restore(states)
            among_copies, _ = first_rows([tf.repeat(value[:1], batch, axis=0) for value in inputs])
        for tensor, one, other, count in zip(tensors, among_others, among_copies, rows):
            alike = _alike(one, other)
            what = MIXES if not alike else ALIKE if count == batch else FOLDS
            if known.get(tensor.op.name, ALIKE) == ALIKE or what == MIXES:  # an op may have several outputs
                known[tensor.op.name] = what

    def split(self, cut: Cut, more: Sequence[Any] = ()) -> SplitStep:
        """Make the two functions of `cut`; the prefix also gives the tensors `more`, behind the cut's."""
        prefix, states = self.prefix([*cut.tensors, *more])
        cached = self.ops.upstream({self._position[t.op.name] for t in cut.tensors})
        # A change of one of these, as by a callback that loads weights, makes the cache wrong.
        read = {id(tensor) for k in cached for tensor in self.ops.operations[k].inputs}
        fixed = [
            v
            for v in self._graph.variables
            if self._handle(v) in read and self._handle(v) not in self._states
        ]
        return SplitStep(cut, prefix, self._suffix(cut), states, fixed)

    def _suffix(self, cut: Cut) -> Callable[..., tf.Tensor]:
        rerun = self.ops.upstream(self.needed() | cut.recomputed, self.ops.frozen)
        # Only the draws that it repeats itself: the prefix has moved the other random states on already.
        effects = [*self._effects, *self._draws_of(self._states_read(rerun))]
        build = self._function([*cut.tensors, *self._step.labels], [self._step.loss], effects)

        def suffix(*values: tf.Tensor) -> tf.Tensor:
            (loss,) = build(*values)
            self._step.finish()
            return loss

        return suffix

    def _handle(self, variable: Any) -> int:
        return id(self._internal[id(variable.handle)])

    def _draws_of(self, states: Set[int]) -> List[Any]:
        """Return the ops that move the random `states` on."""
        return [
            op for op in self._draws if states & self.ops.random_states.get(self._position[op.name], set())
        ]

    def _states_read(self, run: Set[int]) -> Set[int]:
        return {state for k in run for state in self.ops.random_states.get(k, ())}

    def _function(
        self, feeds: Sequence[Any], fetches: Sequence[Any], effects: Sequence[Any]
    ) -> Callable[..., List[tf.Tensor]]:
        """Return the function of the part of the graph that computes `fetches` and `effects` from `feeds`."""
        try:
            return self._step.source.part(feeds, fetches, effects)
        except NotAPart as error:
            raise NotCacheable(f"the step cannot be taken apart: {error}") from None


def most_held() -> float:
    """Return the bytes of tensors that are compared at once."""
    return _HELD if resident.keeps() else _HELD_LITTLE


def in_parts(tensors: Sequence[Any], batch: int, most: float) -> Iterator[List[Any]]:
    """Divide tensors into parts of so many bytes: a function holds all that it returns until it ends."""
    part: List[Any] = []
    held = 0.0
    for tensor in tensors:
        size = batch * row_bytes(tensor, "float32")
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


def _before_dropout(tensor: Any) -> Any:
    """Return the input of the dropout that made `tensor`: it selects between a scaled one and zeros."""
    while tensor.op.type in ("SelectV2", "Select", "Identity"):
        is_dropout = tensor.op.type != "Identity"
        tensor = tensor.op.inputs[1 if is_dropout else 0]
        if is_dropout and tensor.op.type == "Mul":
            tensor = next(t for t in tensor.op.inputs if t.shape.rank)  # the other one is the scale
    return tensor
