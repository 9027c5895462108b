"""A training step in two parts: the prefix, whose results are cached, and the suffix, which reads them."""

from dataclasses import dataclass, replace
from typing import Callable, List, Optional, Sequence, Set, Tuple

import tensorflow as tf

from elastictrainer.cache.cut import Cut, frozen_ops, is_storable, last_frozen_tensors
from elastictrainer.cache.storage import NotCacheable
from elastictrainer.profiler.attribution import depends_on
from elastictrainer.steps.graphs import NotAPart
from elastictrainer.steps.keras_compat.variables import Variable, tf_variable, tf_variables
from elastictrainer.steps.step_cutter import StepOps


@dataclass
class StepParts:
    """The two functions that a training step consists of, for use in a tf.function."""

    cut: Cut
    prefix: Callable[..., List[tf.Tensor]]  # of the flat inputs: the cut's tensors, and others asked for
    suffix: Callable[..., tf.Tensor]  # of the cut's and the flat labels: the loss; it updates as a step
    random_states: List[tf.Variable]  # that the prefix draws random numbers from
    fixed: List[tf.Variable]  # others that it reads: none may change while the cache is used


class TracedStep:
    """A traced training step, sorted into what is frozen and what moves."""

    def __init__(self, step: StepOps, random_states: Sequence[tf.Variable]):
        """Take the step of a selection, and the variables with the state of the model's random numbers."""
        graph = step.source.graph
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

    def tensor(self, name: str) -> tf.Tensor:
        return self._graph.get_tensor_by_name(name)

    def cut(self, batch: int, frozen: Optional[Set[int]] = None) -> Cut:
        """Find the cut behind the last frozen tensors that have a row for each of `batch` examples.

        `frozen`: positions of the frozen ops, where another selection trains; None: all of `ops`.
        """
        ops = self.ops if frozen is None else replace(self.ops, frozen=frozen)
        return last_frozen_tensors(ops, self.needed(frozen), lambda tensor: is_storable(tensor, batch))

    def members(self, variables: Sequence[Variable]) -> List[int]:
        """Return, for each op, the `variables` that it depends on, as bits: variable i is bit i."""
        return depends_on(self.ops.operations, [self.handle(variable) for variable in variables])

    def handle(self, variable: Variable) -> Optional[tf.Tensor]:
        """Return the graph's tensor of a variable's handle; None where the graph does not have it."""
        return self._internal.get(id(tf_variable(variable).handle))

    def edge_of(self, inside: Set[int]) -> List[tf.Tensor]:
        """Return the tensors of the ops `inside` that others read, those of placeholders aside."""
        return [
            tensor
            for k in sorted(inside)
            if self.ops.operations[k].type != "Placeholder"
            for tensor in self.ops.operations[k].outputs
            if any(self._position.get(reader.name, -1) not in inside for reader in tensor.consumers())
        ]

    def prefix(
        self, tensors: Sequence[tf.Tensor]
    ) -> Tuple[Callable[..., List[tf.Tensor]], List[tf.Variable]]:
        """Make the function from the step's inputs to the `tensors`; returns its random states, too."""
        cached = self.ops.upstream({self._position[t.op.name] for t in tensors})
        drawn = self._states_read(cached)
        states = [v for state, v in self._states.items() if state in drawn]
        return self._function(self._step.inputs, list(tensors), self._draws_of(drawn)), states

    def split(self, cut: Cut, more: Sequence[tf.Tensor] = ()) -> StepParts:
        """Make the two functions of `cut`; the prefix also gives the tensors `more`, behind the cut's."""
        prefix, states = self.prefix([*cut.tensors, *more])
        cached = self.ops.upstream({self._position[t.op.name] for t in cut.tensors})
        # A change of one of these, as by a callback that loads weights, makes the cache wrong.
        read = {id(tensor) for k in cached for tensor in self.ops.operations[k].inputs}
        fixed = [
            v
            for v in self._graph.variables
            if id(self.handle(v)) in read and id(self.handle(v)) not in self._states
        ]
        return StepParts(cut, prefix, self._suffix(cut), states, fixed)

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

    def _draws_of(self, states: Set[int]) -> List[tf.Operation]:
        return [
            op for op in self._draws if states & self.ops.random_states.get(self._position[op.name], set())
        ]

    def _states_read(self, run: Set[int]) -> Set[int]:
        return {state for k in run for state in self.ops.random_states.get(k, ())}

    def _function(
        self, feeds: Sequence[tf.Tensor], fetches: Sequence[tf.Tensor], effects: Sequence[tf.Operation]
    ) -> Callable[..., List[tf.Tensor]]:
        """Return the function of the part of the graph that computes `fetches` and `effects` from `feeds`."""
        try:
            return self._step.source.extract(feeds, fetches, effects)
        except NotAPart as error:
            raise NotCacheable(f"the step cannot be taken apart: {error}") from None
