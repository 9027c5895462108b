"""The training objective: the model, its loss, and the term that a scheme adds; for a model that is compiled,
its loss and metrics; and the losses of a classifier.
"""

import inspect
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import tensorflow as tf

from elastictrainer.errors import UsageError
from elastictrainer.steps.folding import FoldedModel
from elastictrainer.steps.graphs import Gradient, Nested, flat
from elastictrainer.steps.keras_compat.fitting import compiled_loss, own_methods
from elastictrainer.steps.keras_compat.variables import Variable, tf_variables

Targets = Tuple[Nested, Nested]  # labels, sample weights or None
Minibatch = Tuple[Nested, Targets]  # inputs, and these


def examples_in(minibatch: Minibatch) -> int:
    """Return the number of a minibatch's examples."""
    return int(flat(minibatch[0])[0].shape[0])


def not_finite_part(minibatch: Minibatch) -> str:
    """Return which part of a minibatch holds a NaN or an infinity, such as "inputs"; empty: none does."""
    x, y = minibatch
    labels, weights = y if isinstance(y, tuple) and len(y) == 2 else (y, None)
    for part, values in (("inputs", x), ("labels", labels), ("sample weights", weights)):
        for value in map(tf.convert_to_tensor, flat(tf.nest.flatten(values, expand_composites=True))):
            if value.dtype.is_floating and not tf.reduce_all(tf.math.is_finite(value)):
                return part
    return ""


class Objective:
    """The loss of a model on a minibatch."""

    def __init__(
        self,
        model: tf.keras.Model,
        loss: Optional[Callable[[tf.Tensor, tf.Tensor], tf.Tensor]] = None,
        penalty: Optional[Callable[[], tf.Tensor]] = None,
        fold: bool = True,
    ):
        """
        Args:
            model: a Keras model, or another tf.Module that is called with inputs and has
                `trainable_variables`; where it takes `training`, that is True in training.
            loss: takes labels and outputs, returns a scalar; None where a subclass computes it.
            penalty: a scalar that a scheme adds to the training loss.
            fold: compute batch norms that keep their statistics inside the layers before them.
        """
        self.model = model
        self.loss: Any = loss
        self.penalty = penalty
        self.fold = fold
        self._folded_model = FoldedModel(model, fold)
        parameters = inspect.signature(type(model).__call__).parameters
        self._takes_training = isinstance(model, tf.keras.Model) or "training" in parameters

    def __call__(
        self, x: Nested, y: Nested, training: bool, trained: Optional[Sequence[Variable]] = None
    ) -> Tuple[Nested, tf.Tensor]:
        """Return the model's outputs and the scalar loss of minibatch (x, y).

        `trained`: the variables whose gradients are wanted; None: all.
        """
        outputs = self._outputs(x, training, trained)
        total = self.loss(y, outputs)
        if training:
            for extra in getattr(self.model, "losses", ()):
                total += extra
            if self.penalty is not None:
                total += self.penalty()
        return outputs, total

    def _outputs(self, x: Nested, training: bool, trained: Optional[Sequence[Variable]]) -> Nested:
        options = {"training": training} if self._takes_training else {}
        return self._folded_model(x, trained, **options)

    def gradients(
        self, x: Nested, y: Nested, variables: Sequence[Variable]
    ) -> Tuple[Nested, tf.Tensor, List[Gradient]]:
        """Return outputs, loss, and the gradient for each of `variables`; None for one it does not use."""
        watched = tf_variables(variables)
        # Watching nothing else keeps everything out of the graph that the selection does not need.
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(watched)
            outputs, total = self(x, y, True, variables)
        return outputs, total, tape.gradient(total, watched)


class KerasObjective(Objective):
    """The loss that `Model.compile` was given. Labels are (labels, sample weights or None)."""

    def __call__(
        self, x: Nested, y: Targets, training: bool, trained: Optional[Sequence[Variable]] = None
    ) -> Tuple[Nested, tf.Tensor]:
        labels, weights = y
        outputs = self._outputs(x, training, trained)
        total = compiled_loss(self.model, x, labels, outputs, weights, training)
        if training and self.penalty is not None:
            total += self.penalty()
        return outputs, total


class KerasMetrics:
    """The metrics that `Model.compile` was given, as a training step updates them."""

    def __init__(self, model: tf.keras.Model):
        self._model = model

    def update_state(self, y: Targets, outputs: Nested) -> None:
        labels, weights = y
        self._model.compute_metrics(None, labels, outputs, weights)

    def results(self) -> Dict[str, Any]:
        return self._model.get_metrics_result()


def make_variables(model: tf.keras.Model, x: Nested, y: Targets) -> None:
    """Make every variable of model and metrics, for minibatches like (x, y), before the first graph.

    In a graph that never runs: without one Keras 3 would hold the outputs of all layers for a whole
    minibatch, and a part of one is not what the user's network and loss are for.
    """

    def use(x: Nested, y: Targets) -> None:
        outputs, _ = KerasObjective(model, fold=False)(x, y, training=False)
        KerasMetrics(model).update_state(y, outputs)

    tf.function(use).get_concrete_function(x, y)
    model.reset_metrics()


def classification_loss(from_logits: bool = True) -> tf.keras.losses.Loss:
    """Make the cross-entropy of integer labels and logits, or probabilities."""
    return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=from_logits)


@tf.keras.utils.register_keras_serializable("elastictrainer")
class SmoothedCrossentropy(tf.keras.losses.Loss):
    """Cross-entropy of integer labels and logits; each example counts as much as its class' weight.

    The weighted losses are averaged over the examples, as by `class_weight` of `Model.fit`. Smoothed labels
    are those of Keras' CategoricalCrossentropy: `label_smoothing` of each is spread over all classes.
    """

    def __init__(
        self,
        label_smoothing: float = 0.0,
        class_weights: Optional[Sequence[float]] = None,
        name: str = "smoothed_crossentropy",
        **options: Any,
    ) -> None:
        """`label_smoothing` is 0 to 1; `class_weights` are (classes,), None: all count alike."""
        super().__init__(name=name, **options)
        self.label_smoothing = label_smoothing
        self.class_weights = None if class_weights is None else [float(w) for w in class_weights]

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Return (batch,) losses, of labels (batch,) or (batch, 1) and logits (batch, classes)."""
        labels = tf.reshape(tf.cast(y_true, tf.int64), (-1,))
        logits = tf.cast(y_pred, tf.float32)
        losses = tf.keras.losses.categorical_crossentropy(
            tf.one_hot(labels, logits.shape[-1]),
            logits,
            from_logits=True,
            label_smoothing=self.label_smoothing,
        )
        if self.class_weights is not None:
            losses *= tf.gather(tf.constant(self.class_weights, losses.dtype), labels)
        return losses

    def get_config(self) -> Dict[str, Any]:
        return {
            **super().get_config(),
            "label_smoothing": self.label_smoothing,
            "class_weights": self.class_weights,
        }


def training_loss(
    label_smoothing: float = 0.0, class_weights: Optional[Sequence[float]] = None
) -> tf.keras.losses.Loss:
    """Make the loss to train by: plain cross-entropy, as in evaluation, unless something is asked."""
    if not label_smoothing and class_weights is None:
        return classification_loss()
    return SmoothedCrossentropy(label_smoothing, class_weights)


def crossentropy_terms(loss: Any) -> Tuple[float, Optional[Sequence[float]]]:
    """Return the label smoothing and the (classes,) class weights of a cross-entropy from logits.

    UsageError where `loss`, as given to `Model.compile`, is another one, or takes probabilities.
    """
    losses = tf.keras.losses
    if isinstance(loss, SmoothedCrossentropy):
        return loss.label_smoothing, loss.class_weights
    known = isinstance(loss, (losses.SparseCategoricalCrossentropy, losses.CategoricalCrossentropy))
    if not known or own_methods(loss, ("__call__", "call", "fn")):
        name = loss if isinstance(loss, str) else type(loss).__name__
        raise UsageError(
            f"the head cannot be solved: the loss {name} is no cross-entropy from logits, such as "
            "SparseCategoricalCrossentropy(from_logits=True)."
        )
    config = loss.get_config()
    if not config.get("from_logits"):
        raise UsageError(
            f"the head cannot be solved: {type(loss).__name__} takes probabilities. Give it "
            "from_logits=True, and the last layer no activation."
        )
    if config.get("ignore_class") is not None:
        raise UsageError(
            f"the head cannot be solved: the loss ignores class {config['ignore_class']}. Leave its examples "
            "out, or keep the head."
        )
    return float(config.get("label_smoothing") or 0.0), None
