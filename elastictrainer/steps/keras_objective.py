"""The loss and metrics that `Model.compile` was given, with sample weights and several outputs."""

from typing import Any, Dict, Tuple

import tensorflow as tf

from elastictrainer.steps.keras_compat.fitting import compiled_loss
from elastictrainer.steps.objective import Objective

Targets = Tuple[Any, Any]  # labels, sample weights or None
Minibatch = Tuple[Any, Targets]  # inputs, and these


class KerasObjective(Objective):
    """The loss that `Model.compile` was given. Labels are (labels, sample weights or None)."""

    def __call__(self, x: Any, y: Targets, training: bool) -> Tuple[Any, tf.Tensor]:
        labels, weights = y
        outputs = self.model(x, training=training)
        total = compiled_loss(self.model, x, labels, outputs, weights, training)
        if training and self.penalty is not None:
            total += self.penalty()
        return outputs, total


class KerasMetrics:
    """The metrics that `Model.compile` was given, as a training step updates them."""

    def __init__(self, model: tf.keras.Model):
        self._model = model

    def update_state(self, y: Targets, outputs: Any) -> None:
        """Take in a minibatch."""
        labels, weights = y
        self._model.compute_metrics(None, labels, outputs, weights)

    def results(self) -> Dict[str, Any]:
        """Return the metrics by name, the loss among them."""
        return self._model.get_metrics_result()


def make_variables(model: tf.keras.Model, x: Any, y: Targets) -> None:
    """Make every variable of model and metrics, for minibatches like (x, y), before the first graph.

    In a graph that never runs: without one Keras 3 would hold the outputs of all layers for a whole
    minibatch, and a part of one is not what the user's network and loss are for.
    """

    def use(x: Any, y: Targets) -> None:
        outputs, _ = KerasObjective(model)(x, y, training=False)
        KerasMetrics(model).update_state(y, outputs)

    tf.function(use).get_concrete_function(x, y)
    model.reset_metrics()
