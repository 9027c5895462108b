"""The model's forward pass, analysed once for all selections of a run."""

from typing import Any, Dict, Optional, Tuple

from elastictrainer.cache.example_mixing import stop_where_examples_mix
from elastictrainer.cache.op_costs import OpCost, op_costs, weights_of
from elastictrainer.cache.split import TracedStep
from elastictrainer.profiler.profile import Profile
from elastictrainer.steps.compiled_step import CompiledStep
from elastictrainer.steps.keras_compat.variables import random_states
from elastictrainer.steps.objective import Objective
from elastictrainer.steps.traced_graph import written_by


class ForwardPass:
    """The ops of a forward pass: what each takes, and whether it mixes the examples of a minibatch.

    The step of every selection begins with these ops, by the same names.

    Attributes:
        traced: the step that trains nothing: all that can be frozen is.
        members: of each of its ops, the tensors that it depends on, as bits.
        mixing: ALIKE, MIXES or FOLDS of an op by name, as `stop_where_examples_mix` finds it.
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
        self.traced = TracedStep(step.in_own_graph(), random_states(objective.model))
        self.members = self.traced.members(objective.model.trainable_variables)
        self.mixing: Dict[str, str] = {}
        stop_where_examples_mix(self.traced, minibatch, self.mixing)
        self._weights = weights_of(self.traced.ops.operations)

    def features(self, kernel: Any) -> Optional[str]:
        """Return the name of the tensor that the dense layer of `kernel` takes, before dropout.

        None where no step's graph shows it, or where it is another one in inference mode: behind batch
        normalisation that trains its statistics.
        """
        operations = self.traced.ops.operations
        statistics = {id(self.traced.handle(v)) for v in self._model.non_trainable_variables}
        if any(id(handle) in statistics for op in operations for handle in written_by(op)):
            return None
        weight = self.traced.handle(kernel)
        for op in operations:
            if op.type == "MatMul" and any(tensor is weight for tensor in op.inputs[1].op.inputs):
                tensor = _before_dropout(op.inputs[0])
                return tensor.name if tensor.shape.rank == 2 else None
        return None

    def op_cost(self, profile: Optional[Profile]) -> OpCost:
        """Return the function from an op to its cost by a profile."""
        return op_costs(profile, self.traced.ops.operations, self._weights, self.members)


def _before_dropout(tensor: Any) -> Any:
    """Return the input of the dropout that made `tensor`: it selects between a scaled one and zeros."""
    while tensor.op.type in ("SelectV2", "Select", "Identity"):
        is_dropout = tensor.op.type != "Identity"
        tensor = tensor.op.inputs[1 if is_dropout else 0]
        if is_dropout and tensor.op.type == "Mul":
            tensor = next(t for t in tensor.op.inputs if t.shape.rank)  # the other one is the scale
    return tensor
