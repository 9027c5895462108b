"""The end of training that a callback asks for, among processes that train together."""

from typing import Any

import tensorflow as tf

from elastictrainer.training.workers import Workers


class StopTogether(tf.keras.callbacks.Callback):
    """Ends training in all processes after the epoch in which a callback of one of them has asked for it.

    A process that left its epoch alone would leave the others waiting for its gradients. Comes after the
    callbacks that may ask.
    """

    def __init__(self, workers: Workers) -> None:
        super().__init__()
        self._workers = workers
        self._asked = False

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Put off what was asked for."""
        self._asked |= bool(self.model.stop_training)
        self.model.stop_training = False

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Agree on whether to stop."""
        asked = self._asked or bool(self.model.stop_training)
        self.model.stop_training = bool(self._workers.gather([asked]).any())
        self._asked = False
