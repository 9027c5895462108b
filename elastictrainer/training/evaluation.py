"""Loss and accuracy on held-out images."""

from typing import TYPE_CHECKING, Any, Callable, Iterable, Optional, Tuple

import tensorflow as tf

from elastictrainer.steps.objective import Objective

if TYPE_CHECKING:
    from elastictrainer.training.workers import Workers


class Evaluator:
    """Mean loss and top-1 accuracy of a classifier; compiled once."""

    def __init__(self, objective: Objective, workers: Optional["Workers"] = None):
        """`workers` evaluate together, each its part of the data; None: this process is alone."""
        self._objective = objective
        self._workers = workers
        self._function = tf.function(self._batch, reduce_retracing=True)

    def _batch(self, x: tf.Tensor, y: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
        logits, loss = self._objective(x, y, training=False)
        return loss, tf.reduce_sum(
            tf.cast(tf.equal(tf.argmax(logits, axis=-1), tf.cast(y, tf.int64)), tf.int32)
        )

    def __call__(
        self, batches: Iterable[Tuple[Any, Any]], before_each: Callable[[], None] = lambda: None
    ) -> Tuple[float, float]:
        """(mean loss, accuracy in 0..1) over minibatches (images, integer labels); `before_each` may raise."""
        loss = correct = count = 0
        for x, y in batches:
            before_each()
            batch_loss, batch_correct = self._function(x, y)
            size = int(y.shape[0])
            loss += float(batch_loss) * size
            correct += int(batch_correct)
            count += size
        if self._workers:
            loss, correct, count = self._workers.everyones([loss, correct, count]).sum(axis=0).tolist()
        return loss / count, correct / count
