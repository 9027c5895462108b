"""The training objective: the model, its loss, and the term that a scheme adds."""

import inspect
from typing import Any, Callable, Optional, Tuple

import tensorflow as tf

from elastictrainer.steps.keras_compat.variables import tf_variables


class Objective:
    """The loss of a model on a minibatch."""

    def __init__(
        self,
        model: tf.keras.Model,
        loss: Optional[Callable[[tf.Tensor, tf.Tensor], tf.Tensor]] = None,
        penalty: Optional[Callable[[], tf.Tensor]] = None,
    ):
        """
        Args:
            model: a Keras model, or another tf.Module that is called with inputs and has
                `trainable_variables`; where it takes `training`, that is True in training.
            loss: takes labels and outputs, returns a scalar; None where a subclass computes it.
            penalty: a scalar that a scheme adds to the training loss.
        """
        self.model = model
        self.loss: Any = loss
        self.penalty = penalty
        parameters = inspect.signature(type(model).__call__).parameters
        self._takes_training = isinstance(model, tf.keras.Model) or "training" in parameters

    def __call__(self, x: Any, y: Any, training: bool) -> Tuple[tf.Tensor, tf.Tensor]:
        """Return the model's outputs and the scalar loss of minibatch (x, y)."""
        outputs = self.model(x, training=training) if self._takes_training else self.model(x)
        total = self.loss(y, outputs)
        if training:
            for extra in getattr(self.model, "losses", ()):
                total += extra
            if self.penalty is not None:
                total += self.penalty()
        return outputs, total

    def gradients(self, x: Any, y: Any, variables: list) -> Tuple[tf.Tensor, tf.Tensor, list]:
        """Return outputs, loss, and the gradient for each of `variables`; None for one it does not use."""
        watched = tf_variables(variables)
        # Watching nothing else keeps everything out of the graph that the selection does not need.
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(watched)
            outputs, total = self(x, y, training=True)
        return outputs, total, tape.gradient(total, watched)


def classification_loss(from_logits: bool = True) -> tf.keras.losses.Loss:
    """Make the cross-entropy of integer labels and logits, or probabilities."""
    return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=from_logits)
