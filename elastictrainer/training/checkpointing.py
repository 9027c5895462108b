"""Checkpoints of a run: after every epoch, every few minutes, and when a signal asks the run to end."""

import functools
import math
import time
from typing import Any, ContextManager, Dict, Optional

import tensorflow as tf

from elastictrainer.errors import Interrupted, RunError, UsageError
from elastictrainer.runs import ownership
from elastictrainer.runs.log import LOG
from elastictrainer.runs.run_folder import RunFolder
from elastictrainer.steps import optimizers
from elastictrainer.steps.keras_compat.optimizer import rate_variables
from elastictrainer.steps.keras_compat.variables import name_of, random_states
from elastictrainer.training.callback import TrainerCallback
from elastictrainer.training.checkpoint_files import CheckpointFiles
from elastictrainer.training.interruption import Interruption
from elastictrainer.training.stopwatch import CHECKPOINT


class Checkpointing(TrainerCallback):
    """Writes a run's checkpoints, and lets it go on from the newest one.

    The result is that of an uninterrupted run to the bit, where the profile is given (`profile`) and the
    clock decides nothing (`deterministic=True`).

    SIGINT, SIGTERM and SIGHUP finish the step, write one more checkpoint, and raise Interrupted; a second one
    ends the process at once. The latest two checkpoints are kept. What is not finite is not saved: RunError.
    """

    def __init__(self, run: RunFolder, minutes: float = 10.0, resume: bool = False):
        """
        Args:
            run: the folder of the checkpoints.
            minutes: between two of them within an epoch; one follows every epoch anyhow.
            resume: go on from the newest whole one. Model, data and settings must be the same.
        """
        super().__init__()
        self.resume = resume
        self._run, self._minutes = run, minutes
        self._interruption = Interruption()
        self._saved_at = time.monotonic()

    @property
    def resumes(self) -> bool:
        """Return whether there is a checkpoint to go on from."""
        return self.resume and bool(ownership.checkpoints(self._run.checkpoints_path))

    def fit_context(self) -> ContextManager[Any]:
        """Hold signals back.

        Raises:
            UsageError: another run's checkpoints are there, or two callbacks would share their state.
        """
        # A checkpoint keeps the state of each under its class' name.
        names = [
            type(c).__name__ for c in self.run_state.callbacks if type(c).state is not TrainerCallback.state
        ]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice:
            raise UsageError(f"two callbacks {twice} would share one state in a checkpoint: leave one out.")
        if not self.resume and ownership.checkpoints(self._run.checkpoints_path):
            raise UsageError(
                f"{self._run.path} has checkpoints of an earlier run. Go on with it by resume=True, or "
                "choose another folder."
            )
        return self._interruption

    def on_train_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """Stop or save if it is time to."""
        state = self.run_state
        if not math.isfinite(state.loss):
            raise state.diverged(f"the loss is {state.loss}")
        stop, save = self._interruption.asked, time.monotonic() - self._saved_at > 60 * self._minutes
        if stop:
            self._stop()
        if save:
            self.save()

    def on_epoch_done(self) -> None:
        """Save."""
        self.save()

    def stop_if_asked(self) -> None:
        """Save and raise Interrupted if a signal has come."""
        if self._interruption.asked:
            self._stop()

    def save(self) -> None:
        """Write a checkpoint.

        Raises:
            RunError: a weight is not finite (nothing is written then), or the checkpoint cannot be written.
        """
        state = self.run_state
        for variable in state.model.trainable_weights:
            if not bool(tf.reduce_all(tf.math.is_finite(variable))):
                raise state.diverged(f"{name_of(variable)} is not finite")
        with state.clock.watch.lap(CHECKPOINT):
            values = {
                "progress": state.progress.to_json(),
                "clock": state.clock.state(),
                "selector": state.selector.state(),
                "stopped": bool(state.model.stop_training),
                "callbacks": {type(c).__name__: c.state() for c in state.callbacks},
            }
            self._checkpoints.save(state.progress.step, values)
        state.last_checkpoint = self._checkpoints.saved()[0]
        self._saved_at = time.monotonic()

    def restore_run(self) -> None:
        """Go on where the newest whole checkpoint was written; from the start where there is none.

        Raises:
            RunError: there are checkpoints, and all are damaged, or of an earlier version.
        """
        state = self.run_state
        saved = self._checkpoints.restore()
        if saved is not None and "clock" not in saved:
            raise RunError(
                f"{self._run.path} is of another version of the program, and cannot be resumed. Start a new "
                "run, with another --output."
            )
        # Also without a checkpoint: lines that an earlier start wrote are removed then.
        for callback in state.callbacks:
            callback.restore(saved and saved["callbacks"].get(type(callback).__name__))
        if saved is None:
            LOG.info(f"{self._run.path} has no checkpoint to go on from: starting from the beginning")
            return
        state.progress.restore(saved["progress"])
        state.clock.restore(saved["clock"])
        state.selector.restore(saved["selector"])
        state.model.stop_training = saved["stopped"] and not (
            state.clock.deadline and state.clock.deadline.extends
        )
        state.last_checkpoint = self._checkpoints.saved()[0]
        LOG.info(f"resumed after step {state.progress.step}, in epoch {state.progress.epoch + 1}")

    @functools.cached_property
    def _checkpoints(self) -> CheckpointFiles:
        state = self.run_state
        return CheckpointFiles(
            self._run.checkpoints_path,
            model=state.model.variables,
            optimizer=[
                *optimizers.variables_of(state.model.optimizer),
                *rate_variables(state.model.optimizer),
            ],
            metrics=state.metric_variables(),
            random=random_states(state.model),
        )

    def _stop(self) -> None:
        self.save()
        by_command = self._run.config_path.exists()
        how = self._run.resume_command if by_command else "Checkpointing(..., resume=True)"
        raise Interrupted(f"Saved after step {self.run_state.progress.step}. Go on with: {how}")
