"""The training loop: the epochs of Keras' `fit`, with its callbacks, its logs and its validation."""

from typing import Any, Dict, Sequence

import numpy as np
import tensorflow as tf

from elastictrainer.errors import UsageError
from elastictrainer.runs.log import LOG
from elastictrainer.steps.keras_compat.fitting import compilation, initial_epoch
from elastictrainer.training.feed import Feed
from elastictrainer.training.prepared import Prepared
from elastictrainer.training.state import RunState
from elastictrainer.training.stepping import TWO_FITS, Stepping
from elastictrainer.training.stopwatch import LOOP, VALIDATION

Logs = Dict[str, Any]


class Loop:
    """Trains a run epoch after epoch, from wherever it stands.

    Keras' own loop cannot: it asks the data for every minibatch, although cached ones take their place; it
    ends after a number of epochs, not by a clock; and it cannot begin in the middle of an epoch.
    """

    def __init__(
        self,
        run_state: RunState,
        feed: Feed,
        prepared: Prepared,
        given: Dict[str, Any],
        callbacks: Sequence[tf.keras.callbacks.Callback],
    ):
        """
        Args:
            run_state: of the run; its policy is made. Its `callbacks` are told of more than Keras' are.
            feed: reads the data.
            prepared: the parts of the run.
            given: arguments of Keras' `fit` by name.
            callbacks: all of them.
        """
        self._state, self._feed, self._prepared, self._given = run_state, feed, prepared, given
        self._stepping = Stepping(run_state, prepared)
        self._compilation = compilation(run_state.model)
        verbose = given.get("verbose", 1)
        self._callbacks = tf.keras.callbacks.CallbackList(
            list(callbacks),
            add_history=True,
            add_progbar=verbose != 0,
            model=run_state.model,
            verbose=1 if verbose == "auto" else verbose,
            epochs=given["epochs"],
            steps=run_state.steps_per_epoch,
        )

    def run(self) -> tf.keras.callbacks.History:
        """Train to the end of the run; returns Keras' History of its epochs.

        Raises:
            UsageError: a callback changed the model in a way that needs another run, or too little time.
            DataError: the data cannot be read.
        """
        state, model = self._state, self._state.model
        self._callbacks.on_train_begin()
        # BackupAndRestore puts a model back to a later epoch.
        first = initial_epoch(model, self._feed.first_epoch, state.steps_per_epoch)
        state.epochs -= first - self._feed.first_epoch
        if state.budget.steps is not None:
            state.budget.steps = state.epochs * state.steps_per_epoch
        self._feed.first_epoch = first
        if state.progress.step:
            state.follow_deadline()
            self._prepared.intervals.resume()
        else:
            self._prepared.budgeting.begin()
        logs: Logs = {}
        while not self._over():
            logs = self._epoch(first + state.progress.epoch) or logs
        self._callbacks.on_train_end(logs)
        return model.history

    def _over(self) -> bool:
        state = self._state
        if state.progress.batch:  # an epoch was interrupted
            return False
        return state.model.stop_training or not state.by_clock and state.progress.epoch >= state.epochs

    def _epoch(self, epoch: int) -> Logs:
        """Make the steps of an epoch, or those that are left of it; returns its logs, none without a step."""
        state, model = self._state, self._state.model
        if not state.progress.batch:
            model.reset_metrics()
        # Meters see the steps alone; evaluation and an epoch's last callbacks come after `on_steps_end`.
        with state.watch.lap(LOOP):
            state.tell("on_steps_begin")
            self._callbacks.on_epoch_begin(epoch)
            self._steps()
            self._feed.end_epoch()
        state.tell("on_steps_end")
        if not state.progress.batch:  # the data ended with the epoch before: this one is none
            return {}
        logs = {name: _as_number(value) for name, value in model.get_metrics_result().items()}
        logs.update(self._validated(epoch))
        logs.update(state.evaluate(state.progress.epoch + 1))
        self._callbacks.on_epoch_end(epoch, logs)
        # Keras' callbacks see what `Model.fit` would give them; its History has more.
        ratio = state.ratio(state.epoch_step_ms())
        ours = {"ratio": float("nan") if ratio is None else ratio, "selected": int(state.policy.mask.sum())}
        for name, value in ours.items():
            model.history.history.setdefault(name, []).append(value)
        state.progress.epoch_done(state.watch.training())
        state.tell("on_epoch_done")
        return logs

    def _steps(self) -> None:
        """Make the steps that are left of the epoch going on."""
        state, model = self._state, self._state.model
        while state.progress.batch < state.steps_per_epoch and not model.stop_training:
            batch = state.progress.batch
            self._callbacks.on_train_batch_begin(batch)
            if compilation(model) is not self._compilation:
                raise UsageError(f"a callback compiled the model during training: {TWO_FITS}")
            try:
                logs = self._stepping.step()
            except StopIteration:
                LOG.info(
                    f"the data has ended after {batch} of {state.steps_per_epoch} minibatches of an epoch: "
                    "training ends. Make it give more (repeat), or pass a lower steps_per_epoch."
                )
                model.stop_training = True
                return
            self._callbacks.on_train_batch_end(batch, logs)

    def _validated(self, epoch: int) -> Logs:
        """Return the entries of validation for an epoch's logs, where `fit` was asked for it."""
        given, every = self._given, self._given.get("validation_freq") or 1
        data = given.get("validation_data")
        due = (epoch + 1) % every == 0 if isinstance(every, int) else epoch + 1 in every
        if data is None or not due:
            return {}
        x, y, weights = tf.keras.utils.unpack_x_y_sample_weight(data)
        with self._state.watch.lap(VALIDATION):
            results = self._state.model.evaluate(
                x,
                y,
                sample_weight=weights,
                batch_size=given.get("validation_batch_size") or given.get("batch_size"),
                steps=given.get("validation_steps"),
                callbacks=self._callbacks,
                verbose=0,
                return_dict=True,
            )
        return {f"val_{name}": value for name, value in results.items()}


def _as_number(value: Any) -> Any:
    """Return a metric's value as a number, or as an array where it is one."""
    array = np.asarray(value)
    return array if array.ndim else array.item()
