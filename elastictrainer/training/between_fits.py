"""The state that one call of `fit` leaves to the next: compiled graphs, the profile, the selection."""

from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional

import tensorflow as tf

from elastictrainer.selection.importance import ImportanceEvaluator
from elastictrainer.selection.schemes import Scheme
from elastictrainer.steps.compiled_step import CompiledSteps
from elastictrainer.steps.keras_compat.fitting import compilation, count_step
from elastictrainer.steps.objective import KerasMetrics, KerasObjective
from elastictrainer.steps.snapshot import digest
from elastictrainer.training.policies import make_scorer
from elastictrainer.training.state import RunState


@dataclass(frozen=True)
class Graphs:
    """The graphs of a model's training. They hold as long as what they were made from does.

    Attributes:
        steps: compiled steps, with objective, optimizer and metrics.
        count_step: counts a step where Keras does, and returns the metrics so far by name.
        scorer: scores the tensors; None where the scheme does not select.
        made_from: objects that these depend on.
    """

    steps: CompiledSteps
    count_step: Callable[[], Dict[str, Any]]
    scorer: Optional[ImportanceEvaluator]
    made_from: List[Any]

    def hold(self, model: tf.keras.Model, spec: Any) -> bool:
        """Return whether they are those of `model` as it is now, and of minibatches of `spec`."""

        def same(one: Any, other: Any) -> bool:
            return one is other or (isinstance(one, (int, tf.TypeSpec)) and one == other)

        now = _made_from(model, spec)
        return len(now) == len(self.made_from) and all(map(same, now, self.made_from))


@dataclass
class FitCarryover:
    """The state that a `Trainer` keeps between two calls of `fit`.

    Attributes:
        graphs: None: none yet, or of an earlier process.
        policy: the state of the policy that selected; None: nothing was selected, or it holds no more.
        steps: steps made since the latest selection.
        weights: digest of the model's variables, as the latest call left them; 0: not known.
        timed_full_ms: times of full steps measured for comparison.
    """

    graphs: Optional[Graphs] = None
    policy: Optional[Dict[str, Any]] = None
    steps: int = 0
    weights: int = 0
    timed_full_ms: List[float] = field(default_factory=list)

    @classmethod
    def after(cls, graphs: Graphs, state: RunState, before: "FitCarryover") -> "FitCarryover":
        """Return the state that a finished run leaves; `before`: the state it found."""
        policy = state.policy
        made = [record["step"] for record in state.selections if "selected" in record]
        steps = state.progress.step - made[-1] if made else before.steps + state.progress.step
        selected = policy.state() if policy.selects else None
        return cls(graphs, selected, steps, digest(state.model.variables), state.progress.timed_full_ms)


def _made_from(model: tf.keras.Model, spec: Any) -> List[Any]:
    """Return the objects that graphs depend on: variables, compilation, specs of minibatches."""
    trainable = model.trainable_variables
    described = [compilation(model), model.optimizer, *tf.nest.flatten(spec), len(trainable)]
    return [*described, *trainable, *model.non_trainable_variables]


def make_graphs(model: tf.keras.Model, scheme: Scheme, spec: Any) -> Graphs:
    """Prepare the graphs of a built model's training; each is traced when it first runs.

    Args:
        model: compiled and built, as is its optimizer.
        scheme: chooses the tensors to train.
        spec: tf.TensorSpecs of any minibatch.
    """
    metrics = KerasMetrics(model)
    objective = KerasObjective(model, penalty=scheme.penalty(model))
    steps = CompiledSteps(objective, model.optimizer, [metrics])

    def counted() -> Dict[str, Any]:
        count_step(model)
        return metrics.results()

    return Graphs(
        steps,
        # A graph takes half the time of the ops one by one; a tf.function would look it up at each call.
        tf.function(counted).get_concrete_function(),
        make_scorer(scheme, steps) if scheme.selects else None,
        _made_from(model, spec),
    )
