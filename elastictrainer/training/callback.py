"""A Keras callback that also sees the run: the base of checkpoints, logs and meters."""

import contextlib
from typing import Any, ContextManager, Dict

import tensorflow as tf

from elastictrainer.training.state import RunState


class TrainerCallback(tf.keras.callbacks.Callback):
    """A callback for `Trainer.fit`. What it does beyond Keras' own events is in the methods here.

    Attributes:
        run_state: set before any event.
    """

    run_state: RunState

    def fit_context(self) -> ContextManager[Any]:
        """Return the context that `fit` runs in, `on_fit_end` included."""
        return contextlib.nullcontext()

    def on_steps_begin(self) -> None:
        """Run before the steps of each epoch."""

    def on_steps_end(self) -> None:
        """Run after the steps of each epoch, before validation."""

    def on_epoch_done(self) -> None:
        """Run when an epoch counts as done: after every callback's `on_epoch_end`."""

    def on_selection(self, record: Dict[str, Any]) -> None:
        """Run when tensors were selected; `record` is the line of selections.jsonl."""

    def on_head(self, record: Dict[str, Any]) -> None:
        """Run when the head was solved, before the first step; `record` has `images`, `loss` (nats) and
        `seconds`.
        """

    def state(self) -> Any:
        """Return the state for `restore`, as JSON values; a checkpoint keeps it under the class' name."""

    def restore(self, state: Any) -> None:
        """Go on from `state`; of a class without state: None."""

    def conclude(self) -> Dict[str, Any]:
        """Return entries to add to summary.json, evaluated now where they were not yet."""
        return {}

    def on_fit_end(self, summary: Dict[str, Any]) -> None:
        """Run when the run is over; `summary`: as in summary.json."""
