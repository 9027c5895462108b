"""The losses of a classifier: cross-entropy, with smoothed labels or weighted classes if asked for."""

from typing import Any, Dict, Optional, Sequence, Tuple

import tensorflow as tf

from elastictrainer.errors import UsageError
from elastictrainer.steps.objective import classification_loss


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
        """
        Args:
            label_smoothing: 0 to 1.
            class_weights: (classes,); None: all count alike.
            name, options: of any Keras loss.
        """
        super().__init__(name=name, **options)
        self.label_smoothing = label_smoothing
        self.class_weights = None if class_weights is None else [float(w) for w in class_weights]

    def call(self, y_true: Any, y_pred: Any) -> tf.Tensor:
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
        """Return the arguments."""
        return {
            **super().get_config(),
            "label_smoothing": self.label_smoothing,
            "class_weights": self.class_weights,
        }


def training_loss(
    label_smoothing: float = 0.0, class_weights: Optional[Sequence[float]] = None
) -> tf.keras.losses.Loss:
    """Make the loss to train by; plain cross-entropy, which evaluation always uses, unless something is
    asked.
    """
    if not label_smoothing and class_weights is None:
        return classification_loss()
    return SmoothedCrossentropy(label_smoothing, class_weights)


def crossentropy_terms(loss: Any) -> Tuple[float, Optional[Sequence[float]]]:
    """Return the label smoothing and the (classes,) class weights of a cross-entropy from logits.

    Raises:
        UsageError: `loss`, as given to `Model.compile`, is another loss, or takes probabilities.
    """
    losses = tf.keras.losses
    if isinstance(loss, SmoothedCrossentropy):
        return loss.label_smoothing, loss.class_weights
    if not isinstance(loss, (losses.SparseCategoricalCrossentropy, losses.CategoricalCrossentropy)):
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
    return float(config.get("label_smoothing") or 0.0), None
