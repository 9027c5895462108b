"""Compiled training steps, one for each selection, in a bounded cache."""

import weakref
from collections import OrderedDict
from dataclasses import InitVar, dataclass
from typing import List, Optional, Sequence

import numpy as np
import tensorflow as tf

from elastictrainer.runs import resident
from elastictrainer.steps.graphs import Gradient, Nested, SourceGraph, flat
from elastictrainer.steps.keras_compat.own_steps import apply
from elastictrainer.steps.keras_compat.variables import Variable, tf_variables
from elastictrainer.steps.objective import Objective
from elastictrainer.steps.ordering import last_writes, one_by_one
from elastictrainer.steps.step_cutter import StepCutter, StepOps


class CompiledStep:
    """One training step that updates a fixed list of tensors; all others stay bit-identical."""

    def __init__(
        self,
        objective: Objective,
        optimizer: tf.keras.optimizers.Optimizer,
        variables: Sequence[tf.Variable],
        metrics: Sequence[tf.keras.metrics.Metric] = (),
        full: Optional["CompiledStep"] = None,
        undone: Sequence[Variable] = (),
    ):
        """Take an optimizer that was built for all trainable tensors, and the variables that it is to update.

        `metrics` are updated with (labels, outputs). `full` is the step of all trainable tensors: once it is
        traced, this one is taken out of its graph. Variables in `undone` get the values that they had before
        the step in it, one by one as soon as they are updated: it never holds two values of all of them.
        """
        self.objective = objective
        self.optimizer = optimizer
        self.variables = list(variables)
        self.metrics = list(metrics)
        # Symbolic tensors, after `trace`, of its graph.
        self.graph: Optional[tf.Graph] = None
        self.loss: Optional[tf.Tensor] = None
        self.gradients: List[Gradient] = []  # per variable; none of a step taken out of the full one
        self.handles: List[Optional[tf.Tensor]] = []  # per variable; None where the step does not use it
        self.runs = 0  # so far
        # Weakly: the cache of steps decides how long a graph lives.
        self._full = weakref.ref(full) if full is not None else None
        self._undone = tf_variables(undone)
        self._counts = (0, 0)  # of the tensors of inputs and labels
        self._cutter: Optional[StepCutter] = None
        self._function = tf.function(self._step)

    def _step(self, x: Nested, y: Nested) -> tf.Tensor:
        extracted = self._cut_out(x, y)
        if extracted is not None:
            self.loss, self.gradients = extracted.build(x, y), []
            return self.loss
        before = [variable.read_value() for variable in self._undone]  # copied when they are written
        outputs, self.loss, self.gradients = self.objective.gradients(x, y, self.variables)
        apply(self.optimizer, list(zip(self.gradients, self.variables)), self.loss)
        for metric in self.metrics:
            metric.update_state(y, outputs)
        for variable, value in zip(self._undone, before):
            variable.assign(value)
        one_by_one(self.gradients, last_writes(self.variables))
        return self.loss

    def __call__(self, x: Nested, y: Nested) -> tf.Tensor:
        """Train on minibatch (x, y); returns the scalar loss."""
        self.runs += 1
        return self._function(x, y)

    def trace(self, x: Nested, y: Nested) -> None:
        """Build the graph for minibatches shaped like (x, y), without running it."""
        self.graph = self._function.get_concrete_function(x, y).graph
        self._counts = len(flat(x)), len(flat(y))
        internal = {id(outer): inner for outer, inner in self.graph.captures}
        self.handles = [internal.get(id(v.handle)) for v in tf_variables(self.variables)]

    def in_graph(self, x: Nested, y: Nested) -> StepOps:
        """Return this step's ops on minibatches shaped like (x, y), in the full step's graph or its own."""
        found = self._cut_out(x, y)
        if found is None:
            self.trace(x, y)
            found = self.in_own_graph()
        return found

    def cutter(self) -> Optional[StepCutter]:
        """Return what cuts the steps of selections out of this full step's graph; None before `trace`."""
        if self.loss is None or self.loss.graph is not self.graph:
            return None
        if self._cutter is None or self._cutter.graph is not self.graph:
            self._cutter = StepCutter(self.in_own_graph(), self.variables, self.gradients, self.optimizer)
        return self._cutter

    @tf.autograph.experimental.do_not_convert
    def _cut_out(self, x: Nested, y: Nested) -> Optional[StepOps]:
        full = self._full() if self._full is not None else None
        cutter = full.cutter() if full is not None else None
        step = cutter.step(self.variables) if cutter is not None else None
        return step if step is not None and step.takes(x, y) else None

    def in_own_graph(self) -> StepOps:
        """Return the ops of all of the graph that `trace` has made."""
        graph = self.graph
        assert graph is not None, "trace the step first"
        inputs, labels = self._counts
        placeholders = [t for t in graph.inputs if t.dtype != tf.resource][: inputs + labels]
        # The graph's own output is an identity that waits for all that the step does.
        loss = graph.outputs[0].op.inputs[0]
        return StepOps(
            SourceGraph(graph), placeholders[:inputs], placeholders[inputs:], loss, graph.control_outputs
        )

    def state(self) -> List[tf.Variable]:
        """Return the variables the traced step reads or writes: weights, slots, counters, statistics."""
        assert self.graph is not None, "trace the step first"
        return list(self.graph.variables)


@dataclass(eq=False)
class CompiledSteps:
    """The compiled steps of the latest selections. An old one is freed before memory grows."""

    objective: Objective  # this and the next two as for `CompiledStep`
    optimizer: tf.keras.optimizers.Optimizer
    metrics: Sequence[tf.keras.metrics.Metric] = ()
    size: int = 3  # of steps that are kept: the full one, this selection's and the one's before
    full: InitVar[Optional[CompiledStep]] = None  # of all tensors, where it is compiled already

    def __post_init__(self, full: Optional[CompiledStep]) -> None:
        self._steps: "OrderedDict[bytes, CompiledStep]" = OrderedDict()
        if full is not None:
            self._steps[np.ones(len(full.variables), bool).tobytes()] = full

    def __len__(self) -> int:
        return len(self._steps)

    def clear(self) -> None:
        self._steps.clear()
        resident.release_memory()

    def has(self, mask: np.ndarray) -> bool:
        return mask.tobytes() in self._steps

    def full_if_compiled(self) -> Optional[CompiledStep]:
        return self._steps.get(np.ones(len(self.objective.model.trainable_variables), bool).tobytes())

    def make(self, mask: np.ndarray) -> CompiledStep:
        """Make the step that trains the tensors of `mask` (N,) bool, for the caller alone."""
        variables = [v for v, chosen in zip(self.objective.model.trainable_variables, mask) if chosen]
        full = None if mask.all() else self.full_if_compiled()
        return CompiledStep(self.objective, self.optimizer, variables, self.metrics, full)

    def get(self, mask: np.ndarray) -> CompiledStep:
        """Return the step that trains the tensors of `mask` (N,) bool; a new one may replace the oldest."""
        key = mask.tobytes()
        if key not in self._steps:
            self._steps[key] = self.make(mask)
            if len(self._steps) > self.size:
                self._steps.popitem(last=False)
                # A graph and its function refer to each other. The small blocks of a graph lie among larger
                # ones: without giving them back, the next selections spread over more and more memory.
                resident.release_memory()
        self._steps.move_to_end(key)
        return self._steps[key]
