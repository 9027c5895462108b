"""Cuts the steps of selections out of the full step's graph, so that Python need not trace them.

Measured by `scripts/benchmarks/surgery.py` of commit 7dc2fe8, busy processor, three selections with AdamW on
Keras 2: a step of MobileNetV2 is cut out in 0.6 to 1.3 s and traced in 4.3 to 11 s; in a subclassed model
1.1 to 1.4 s, 4.2 to 10 s.
"""

import itertools
from dataclasses import dataclass, field
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Set

import tensorflow as tf

from elastictrainer.steps import optimizers
from elastictrainer.steps.graph_library import called
from elastictrainer.steps.graphs import READS, Gradient, Nested, SourceGraph, flat, values_of, written_by
from elastictrainer.steps.keras_compat.optimizer import paused_steps
from elastictrainer.steps.keras_compat.own_steps import count_paused
from elastictrainer.steps.keras_compat.variables import Variable, tf_variables


@dataclass
class StepOps:
    """The ops of a training step: all of its own graph, or some among the updates of others."""

    source: SourceGraph
    inputs: List[tf.Tensor]  # placeholders, flat
    labels: List[tf.Tensor]  # the same
    loss: tf.Tensor
    effects: List[tf.Operation]  # that run for their effect: updates, counters, statistics, random states
    finish: Callable[[], None] = field(default=lambda: None)  # traces what the graph does not have

    @tf.autograph.experimental.do_not_convert
    def build(self, x: Nested, y: Nested) -> tf.Tensor:
        """Build the step on minibatch (x, y) into the tf.function that is being traced; returns the loss."""
        build = self.source.extract([*self.inputs, *self.labels], [self.loss], self.effects)
        (loss,) = build(*flat(x), *flat(y))
        self.finish()
        return loss

    def takes(self, x: Nested, y: Nested) -> bool:
        placeholders, given = [*self.inputs, *self.labels], [*flat(x), *flat(y)]
        return len(placeholders) == len(given) and all(
            isinstance(spec, (tf.Tensor, tf.TensorSpec))
            and tf.TensorSpec(spec.shape, spec.dtype).is_subtype_of(tf.TensorSpec(p.shape, p.dtype))
            for p, spec in zip(placeholders, given)
        )


class _Update(NamedTuple):
    """An op that updates a variable."""

    op: tf.Operation
    gradients: Set[int]  # numbers of the tensors whose gradients it needs
    writes: Set[str]  # names of the handles that it writes through


class StepCutter:
    """Finds the step of every selection in the `graph` of a traced full step.

    That of a selection has the same loss and the same gradients. Of the updates it has those of its tensors.
    """

    def __init__(
        self,
        whole: StepOps,
        variables: Sequence[Variable],
        gradients: Sequence[Gradient],
        optimizer: tf.keras.optimizers.Optimizer,
    ):
        """Take the full step, all trainable tensors, gradients as of `CompiledStep`, and the optimizer."""
        self._whole, self._variables, self._gradients = whole, list(variables), list(gradients)
        self._optimizer = optimizer
        self.graph = whole.source.graph
        graph = self.graph
        internal = {id(outer): inner.name for outer, inner in graph.captures}
        self._weights = [internal.get(id(v.handle)) for v in tf_variables(variables)]
        paused = paused_steps(optimizer)
        self._paused = None if paused is None else internal.get(id(paused.handle))
        self._slots = {
            internal[id(v.handle)]: v.shape.num_elements()
            for v in tf_variables(optimizers.variables_of(optimizer))
            if id(v.handle) in internal
        }
        values = {k: values_of(g).name for k, g in enumerate(gradients) if g is not None}
        self._divides = not self._goes_through_calls(set(values.values()))
        effects = [op for op in graph.control_outputs if op.type not in READS]
        names = (op.name for op in graph.get_operations())
        forward = set(itertools.takewhile(lambda name: name != whole.loss.op.name, names))
        # Ops are in the order of tracing: those before the loss are the forward pass. It runs in every step,
        # also where it writes to a weight.
        self._always = [op for op in effects if op.name in forward]
        self._updates: List[_Update] = []  # the others
        if self._divides:  # a graph with loops is not in the order that this needs
            needs, updates = self._needed_gradients(values), [op for op in effects if op.name not in forward]
            self._updates = [_Update(op, needs[op.name], {t.name for t in written_by(op)}) for op in updates]

    def step(self, variables: Sequence[Variable]) -> Optional[StepOps]:
        """Return the step that updates `variables`; None where the graph cannot be taken apart so."""
        ids = {id(v) for v in variables}
        chosen = {k for k, v in enumerate(self._variables) if id(v) in ids}
        effects = self._effects_of(chosen) if self._divides and len(chosen) == len(variables) else None
        if effects is None:
            return None
        trained = [self._variables[k] for k in sorted(chosen) if self._gradients[k] is not None]
        if chosen and not trained:  # no optimizer is applied
            return None

        def finish() -> None:
            if trained:
                count_paused(self._optimizer, trained)

        whole = self._whole
        return StepOps(whole.source, whole.inputs, whole.labels, whole.loss, effects, finish)

    @tf.autograph.experimental.do_not_convert
    def gradients(self, x: Nested, y: Nested) -> Optional[List[Gradient]]:
        """Build the gradients on minibatch (x, y) into the tf.function that is being traced.

        Statistics and random states change as in a step. Returns for each tensor its gradient, None where it
        has none; None where `step` is None.
        """
        step = self.step([])  # without updates
        if step is None or not step.takes(x, y):
            return None
        wanted = [g for g in self._gradients if g is not None]
        tensors = tf.nest.flatten(wanted, expand_composites=True)
        built = step.source.extract([*step.inputs, *step.labels], tensors, step.effects)(*flat(x), *flat(y))
        found = iter(tf.nest.pack_sequence_as(wanted, built, expand_composites=True))
        return [None if g is None else next(found) for g in self._gradients]

    def _effects_of(self, chosen: Set[int]) -> Optional[List[tf.Operation]]:
        """Return the effects of the step of these tensors; None where they depend on the others."""
        left_out = {name for k, name in enumerate(self._weights) if k not in chosen}
        found, counters = list(self._always), set()
        for op, gradients, writes in self._updates:
            if self._paused in writes or (gradients and not gradients & chosen):
                continue
            if gradients - chosen:  # such as clipping by the norm of all gradients
                return None
            if writes & left_out:
                if gradients:
                    return None
                continue  # such as weight decay
            if not gradients:
                # A counter is written once, whatever trains. Nobody knows which tensors another slot is for.
                for name in writes & set(self._slots):
                    if name in counters or self._slots[name] != 1:
                        return None
                    counters.add(name)
            found.append(op)
        return found

    def _needed_gradients(self, values: Dict[int, str]) -> Dict[str, Set[int]]:
        """Return, for each op, the numbers of the gradients that its value needs first."""
        of_tensor: Dict[str, Set[int]] = {}
        for k, name in values.items():
            of_tensor.setdefault(name, set()).add(k)
        needs: Dict[str, Set[int]] = {}
        for name, sources in self._whole.source.inputs():
            needs[name] = set().union(*(of_tensor.get(s) or needs[s.partition(":")[0]] for s in sources))
        return needs

    def _goes_through_calls(self, gradients: Set[str]) -> bool:
        """Return whether a gradient goes through a function, as that of a loop does.

        Its graph is then another one for each set of tensors: what is kept for the way back is not the same.
        """
        source = self._whole.source
        weighted = {name.partition(":")[0] for name in self._weights if name is not None}
        for name, sources in source.inputs():
            if any(s.partition(":")[0] in weighted for s in sources):
                weighted.add(name)
        on_the_way = source.upstream({name.partition(":")[0] for name in gradients})
        return any(
            node.name in weighted and node.name in on_the_way and called(node)
            for node in source.definition.node
        )
