"""Callbacks: the base of those that also see the run, one that warns, and checks of Keras' and the user's."""

import contextlib
import math
from typing import Any, ContextManager, List, Optional, Sequence

import tensorflow as tf

from elastictrainer.errors import UsageError
from elastictrainer.registry import import_object
from elastictrainer.runs.log import LOG
from elastictrainer.steps import optimizers
from elastictrainer.steps.rates import RateSchedule
from elastictrainer.training.state import RunState, Values

_AVERAGED = 50  # steps that the loss is averaged over: one minibatch of four says little
_FALL = 0.03  # of the accuracy of the solved head
_FAR = 0.5  # of the way from the loss of the solved head to that of a classifier that knows nothing
_SET_RATES = (tf.keras.callbacks.ReduceLROnPlateau, tf.keras.callbacks.LearningRateScheduler)
_SWAPS = getattr(tf.keras.callbacks, "SwapEMAWeights", ())  # of Keras 3


class TrainerCallback(tf.keras.callbacks.Callback):
    """A callback for `Trainer.fit`, which sets `run_state` first; some of its events are not Keras' own."""

    run_state: RunState

    def fit_context(self) -> ContextManager[Any]:
        """Return the context that `fit` runs in, `on_fit_end` included."""
        return contextlib.nullcontext()

    def on_steps_begin(self) -> None:
        """Run before the steps of each epoch."""

    def on_steps_end(self) -> None:
        """Run after the steps of each epoch, before validation."""

    def evaluate(self, epoch: int) -> Values:
        """Return entries to add to an epoch's logs, such as `val_loss`, before any callback sees them.

        Run after `epoch` epochs (from 1), before `on_epoch_end`; with 0 when the head was solved, before
        `on_head`.
        """
        return {}

    def on_epoch_done(self) -> None:
        """Run when an epoch counts as done: after every callback's `on_epoch_end`."""

    def on_selection(self, record: Values) -> None:
        """Run when tensors were selected; `record` is the line of selections.jsonl."""

    def on_head(self, record: Values) -> None:
        """Run with `images`, `loss` (nats), `seconds` and what `evaluate` gave when the head was solved."""

    def before_checkpoint(self) -> None:
        """Run before `state` is asked for a checkpoint."""

    def state(self) -> Any:
        """Return the state for `restore`, as JSON values; a checkpoint keeps it under the class' name."""

    def restore(self, state: Any) -> None:
        """Go on from `state`; of a class without state: None."""

    def conclude(self) -> Values:
        """Return entries to add to summary.json, evaluated now where they were not yet."""
        return {}

    def on_fit_end(self, summary: Values) -> None:
        """Run when the run is over; `summary`: as in summary.json."""


class RisingLoss(TrainerCallback):
    """Says once that training undoes the solved head, by loss or by accuracy, with a rate to try."""

    def __init__(self, classes: int) -> None:
        """`classes`: of the classifier; one that knows nothing has a loss of their number's logarithm."""
        super().__init__()
        self._chance = math.log(max(2, classes))
        self._mean: Optional[float] = None
        self._seen = 0
        self._said = False
        self._head: Optional[float] = None  # accuracy of the solved head
        self._error = 0.0  # how far it may be from the accuracy on all images

    def state(self) -> Any:
        return self._mean, self._seen, self._said, self._head, self._error

    def restore(self, state: Any) -> None:
        if state is not None:
            self._mean, self._seen, self._said, self._head, self._error = state

    def on_head(self, record: Values) -> None:
        self._head = record.get("val_accuracy")
        self._error = self.run_state.evaluated.get("accuracy_error", 0.0)

    def on_train_batch_end(self, batch: int, logs: Optional[Values] = None) -> None:
        state, start_loss = self.run_state, self.run_state.progress.start_loss
        if start_loss is None or self._said or not math.isfinite(state.loss):
            return
        mean = state.loss if self._mean is None else self._mean
        self._mean = mean + (state.loss - mean) / _AVERAGED
        self._seen += 1
        limit = start_loss + _FAR * (self._chance - start_loss)
        if self._seen >= _AVERAGED and self._mean > max(limit, start_loss):
            self._say(f"the loss has risen from {start_loss:.2f} to {self._mean:.2f}")

    def on_epoch_end(self, epoch: int, logs: Optional[Values] = None) -> None:
        accuracy, head = (logs or {}).get("val_accuracy"), self._head
        if accuracy is None or head is None or self._said:
            return
        errors = self._error + self.run_state.evaluated.get("accuracy_error", 0.0)  # of samples
        if accuracy < head - _FALL - errors:
            self._say(f"the accuracy has fallen from {100 * head:.1f} to {100 * accuracy:.1f} %")

    def _say(self, what: str) -> None:
        state, self._said = self.run_state, True
        rate = optimizers.learning_rate_of(state.model.optimizer)
        highest = rate if state.rates is None else state.rates.highest
        LOG.info(
            f"note: {what}: training undoes the solved head. If it does not recover, try a learning rate of "
            f"{highest / 2:g}."
        )


def require_supported_callbacks(
    callbacks: Sequence[Any], optimizer: Any, checkpointed: bool, rates: Optional[RateSchedule] = None
) -> None:
    """Refuse a callback that would fail in the middle of the run, or do nothing: UsageError with its name.

    `checkpointed`: `Checkpointing` saves the run. `rates`: of the run in every step; None: it sets none.
    """
    for callback in callbacks:
        name = type(callback).__name__
        if isinstance(callback, _SET_RATES) and (rates or optimizers.follows_schedule(optimizer)):
            raise UsageError(
                f"{name} sets the learning rate, and the optimizer follows a schedule: give it a "
                "number as its learning rate (et-train: --schedule constant --warmup 0)."
            )
        if isinstance(callback, _SWAPS):
            raise UsageError(f"{name} needs an optimizer with use_ema, which is not supported: leave it out.")
        if not isinstance(callback, tf.keras.callbacks.BackupAndRestore):
            continue
        if checkpointed:
            raise UsageError(
                f"{name} would overwrite the state that Checkpointing brings back (et-train --resume): leave "
                f"{name} out."
            )
        if callback.save_freq != "epoch":  # Keras 2 would take the rest of an epoch for all of it
            raise UsageError(
                f"{name}(save_freq={callback.save_freq}) would go on within an epoch: use "
                'save_freq="epoch", or Checkpointing, which can.'
            )


def named_callbacks(places: Optional[str]) -> List[tf.keras.callbacks.Callback]:
    """Make the callbacks at `places`, "package.module:name" separated by commas: classes, or functions.

    They get no arguments. UsageError where one cannot be imported, fails, or gives something else.
    """
    made = []
    for place in places.split(",") if places else []:
        make = import_object("--callback", place)
        try:
            callback = make()
        except Exception as error:  # the user's own code
            reason = " ".join(str(error).split())
            raise UsageError(
                f"--callback {place} failed: {type(error).__name__}: {reason} It is called without "
                "arguments: where it needs some, name a function that returns it."
            ) from error
        if not isinstance(callback, tf.keras.callbacks.Callback):
            raise UsageError(f"--callback {place} gave a {type(callback).__name__}, not a Keras callback.")
        made.append(callback)
    return made
