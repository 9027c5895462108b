"""Says early that training undoes a solved head."""

import math
from typing import Any, Dict, Optional

from elastictrainer.runs.log import LOG
from elastictrainer.steps import optimizers
from elastictrainer.training.callback import TrainerCallback

_STEPS = 50  # that the loss is averaged over: one minibatch of four says little
_FAR = 0.5  # of the way from the loss of the solved head to that of a classifier that knows nothing


class RisingLoss(TrainerCallback):
    """Says once that the training loss has risen far above that of the solved head, with a rate to try."""

    def __init__(self, classes: int) -> None:
        """`classes`: of the classifier; one that knows nothing has a loss of their number's logarithm."""
        super().__init__()
        self._chance = math.log(max(2, classes))
        self._mean: Optional[float] = None
        self._seen = 0
        self._said = False

    def on_train_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """Take in the step's loss."""
        state, start_loss = self.run_state, self.run_state.progress.start_loss
        if start_loss is None or self._said or not math.isfinite(state.loss):
            return
        mean = state.loss if self._mean is None else self._mean
        self._mean = mean + (state.loss - mean) / _STEPS
        self._seen += 1
        limit = start_loss + _FAR * (self._chance - start_loss)
        if self._seen >= _STEPS and self._mean > max(limit, start_loss):
            self._said = True
            rate = optimizers.learning_rate_of(state.model.optimizer)
            highest = rate if state.rates is None else state.rates.highest
            LOG.info(
                f"note: the loss has risen from {start_loss:.2f} to {self._mean:.2f}: training undoes "
                f"the solved head. If it does not recover, try --learning-rate {highest / 2:g}."
            )
