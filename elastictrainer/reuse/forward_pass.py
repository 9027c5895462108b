"""The model's forward pass, analysed once for all selections of a run."""

from typing import Any, Dict, Optional, Tuple

from elastictrainer.profiler.profile import Profile
from elastictrainer.reuse.op_costs import OpCosts, weights_of
from elastictrainer.reuse.split import TracedStep
from elastictrainer.steps.compiled_step import CompiledStep
from elastictrainer.steps.keras_compat.variables import random_states
from elastictrainer.steps.objective import Objective


class ForwardPass:
    """The ops of a forward pass: what each takes, and whether it mixes the examples of a minibatch.

    The step of every selection begins with these ops, by the same names.

    Attributes:
        traced: the step that trains nothing: all that can be frozen is.
        members: of each of its ops, the tensors that it depends on, as bits.
        examples: ALIKE, MIXES or FOLDS of an op by name, as `TracedStep.stop_where_examples_mix` finds it.
    """

    def __init__(
        self,
        objective: Objective,
        optimizer: Any,
        minibatch: Tuple[Any, Any],
        full: Optional[CompiledStep] = None,
    ):
        """
        Args:
            objective, optimizer, full: as for CompiledStep.
            minibatch: inputs and labels of a full size.
        """
        self._model = objective.model
        step = CompiledStep(objective, optimizer, [], full=full)
        # In a graph of its own, which knows the size of the minibatch: costs depend on it.
        step.trace(*minibatch)
        self.traced = TracedStep(step.whole(), random_states(objective.model))
        self.members = self.traced.members(objective.model.trainable_variables)
        self.examples: Dict[str, str] = {}
        self.traced.stop_where_examples_mix(minibatch, self.examples)
        self._weights = weights_of(self.traced.ops.operations)

    def features(self, kernel: Any) -> Optional[str]:
        """Return the name of the tensor that the dense layer of `kernel` takes, before dropout.

        None where no step's graph shows it, or where it is another one in inference mode: behind batch
        normalisation that trains its statistics.
        """
        if self.traced.updates(self._model.non_trainable_variables):
            return None
        tensor = self.traced.input_of(kernel)
        return None if tensor is None or tensor.shape.rank != 2 else tensor.name

    def op_costs(self, profile: Optional[Profile]) -> OpCosts:
        """Return the cost of each op by a profile."""
        return OpCosts(profile, self.traced.ops.operations, self._weights, self.members)
