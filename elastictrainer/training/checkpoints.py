"""Checkpoints of a run: after every epoch, every few minutes, and when a signal asks the run to end."""

import functools
import json
import math
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any, ContextManager, Dict, List, Optional, Set

import tensorflow as tf

from elastictrainer.errors import Interrupted, RunError, UsageError
from elastictrainer.runs import ownership
from elastictrainer.runs.files import atomic_write, loads, remove_unfinished, set_aside, without_wildcards
from elastictrainer.runs.log import LOG
from elastictrainer.runs.run_folder import RunFolder
from elastictrainer.steps import optimizers
from elastictrainer.steps.keras_compat.optimizer import rate_variables
from elastictrainer.steps.keras_compat.variables import name_of, random_states, share_zeros, tf_variables
from elastictrainer.training.callbacks import TrainerCallback
from elastictrainer.training.clock import CHECKPOINT
from elastictrainer.training.state import Values

_FORMAT = 4  # of a checkpoint's state, counted up by each change of it
_KEEP = 2  # checkpoints: the newest, and one more should it be damaged
_VARIABLES = "variables"
_STATE = "state/.ATTRIBUTES/VARIABLE_VALUE"  # its name in a checkpoint
_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Interruption:
    """While entered, notes (`asked`) SIGINT, SIGTERM and SIGHUP instead of obeying; in the main thread alone.

    The step is finished first; a second signal ends the process at once.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: Dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Interruption":
        self.asked = False
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:  # nohup, or a shell's background job
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: Any) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _note(self, number: int, frame: Any) -> None:
        self.asked = True
        # The next one is the operating system's to deal with, even inside a long op.
        for held in self._before:
            signal.signal(held, signal.SIG_DFL)


class CheckpointFiles:
    """Saves whole checkpoints, keeps the last two, and restores the newest that is not damaged."""

    def __init__(self, folder: Path, **variables: List[Any]):
        """Keep lists of `variables`, which all exist, by a name of the caller's, in folders in `folder`."""
        self.folder = folder
        groups: Dict[str, List[tf.Variable]] = {}
        self._variables: Dict[str, tf.Variable] = {}  # by the names of their values in a checkpoint
        seen: Set[int] = set()
        for name, members in variables.items():
            groups[name] = [v for v in tf_variables(members) if id(v) not in seen]
            seen.update(map(id, groups[name]))
            for place, variable in enumerate(groups[name]):
                self._variables[f"{name}/{place}/.ATTRIBUTES/VARIABLE_VALUE"] = variable
        # The state stands among the variables, so that TensorFlow's checksums cover it too.
        self._state = tf.Variable("", dtype=tf.string, trainable=False)
        self._variables[_STATE] = self._state
        self._checkpoint = tf.train.Checkpoint(state=self._state, **groups)

    def saved(self) -> List[Path]:
        return ownership.checkpoints(self.folder)

    def save(self, step: int, state: Values) -> None:
        """Write a checkpoint with the JSON `state` for `restore`, then remove those that are too old.

        RunError where it cannot be written. The checkpoints before it are then as they were.
        """
        path = self.folder / ownership.checkpoint_name(step)
        self._state.assign(json.dumps(state))
        try:
            if not path.exists():
                with atomic_write(path) as unfinished:
                    unfinished.mkdir()
                    self._checkpoint.write(str(unfinished / _VARIABLES))
        except (OSError, tf.errors.OpError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error.message).splitlines()[0]
            kept = self.saved()
            raise RunError(
                f"cannot write the checkpoint {path}: {reason}. "
                + (f"The last good one is {kept[0]}." if kept else "There is none before it.")
            ) from None
        for old in self.saved()[_KEEP:]:
            shutil.rmtree(old)

    def restore(self) -> Optional[Values]:
        """Put the newest whole checkpoint's values into the variables; damaged ones are set aside.

        Returns the state saved with it, None where there is no checkpoint. RunError where all are damaged,
        or the newest is of another model: then all stay as they are.
        """
        remove_unfinished(self.folder)
        saved = self.saved()
        for number, path in enumerate(saved):
            try:
                self._read(path)
                state: Values = loads(self._state.numpy())
            except RunError:
                raise
            except Exception as error:  # TensorFlow's reader raises many kinds for a damaged file
                reason = (str(error).splitlines() or [""])[0]
                LOG.info(
                    f"the checkpoint {path} is damaged and passed over ({type(error).__name__}: {reason})"
                )
                continue
            for damaged in saved[:number]:
                LOG.info(f"what is left of {damaged.name} is kept as {set_aside(damaged)}")
            return state
        if saved:
            raise RunError(
                f"no checkpoint in {self.folder} can be read. Start a new run, with another --output."
            )
        return None

    def _read(self, path: Path) -> None:
        """Read the variables of one checkpoint; RunError, and nothing read, where it has others."""
        with without_wildcards(path) as readable:
            reader = tf.train.load_checkpoint(str(readable / _VARIABLES))
            shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
            there = len(shapes) - 1  # one entry describes the others
            alike = [
                name in shapes and v.shape.is_compatible_with(shapes[name]) and v.dtype == dtypes[name]
                for name, v in self._variables.items()
            ]
            if not all(alike) or there != len(alike):
                raise RunError(
                    f"the checkpoint {path} is of another model, optimizer or metrics: of its {there} "
                    f"variables {sum(alike)} are among the {len(alike)} of this run. Resume with those that "
                    "it was written with, or start a new run."
                )
            # One after another: `tf.train.Checkpoint` holds all that it reads before it assigns any of it.
            for name, variable in self._variables.items():
                variable.assign(reader.get_tensor(name))
                if variable is not self._state:
                    share_zeros(variable)  # slots of frozen tensors


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
    def trained_layers(self) -> bool:
        """Return whether there is a checkpoint to go on from, of a run that trains more than its head."""
        saved = ownership.checkpoints(self._run.checkpoints_path) if self.resume else []
        if not saved:
            return False
        try:
            with without_wildcards(saved[0]) as readable:
                reader = tf.train.load_checkpoint(str(readable / _VARIABLES))
            stage = loads(reader.get_tensor(_STATE))["clock"]["stage"]
        except Exception:  # a damaged one, of which `restore_run` tells
            return True
        return stage is None or bool(stage["trains"])

    def fit_context(self) -> ContextManager[Any]:
        """Hold signals back; UsageError for another run's checkpoints, or two callbacks with one state."""
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

    def on_train_batch_end(self, batch: int, logs: Optional[Values] = None) -> None:
        state = self.run_state
        if not math.isfinite(state.loss):
            raise state.diverged(f"the loss is {state.loss}")
        self.stop_if_asked()
        if time.monotonic() - self._saved_at > 60 * self._minutes:
            self.save()

    def on_epoch_done(self) -> None:
        self.save()

    def stop_if_asked(self) -> None:
        if not self._interruption.asked:
            return
        by_command = self._run.config_path.exists()
        how = self._run.resume_command if by_command else "Checkpointing(..., resume=True)"
        if not self.run_state.progress.step:  # what was prepared for the first step is made again
            raise Interrupted(f"No step was made yet. Begin again with: {how}")
        self.save()
        raise Interrupted(f"Saved after step {self.run_state.progress.step}. Go on with: {how}")

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
            state.tell("before_checkpoint")
            values = {
                "format": _FORMAT,
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

        RunError where there are checkpoints, and all are damaged, or of an earlier version.
        """
        state = self.run_state
        saved = self._checkpoints.restore()
        if saved is not None and saved.get("format") != _FORMAT:
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
        state.model.stop_training = saved["stopped"]
        if state.clock.deadline and state.clock.deadline.more_s:  # what ended it early does so no more
            if state.progress.stopped:
                state.progress.patient_from = state.progress.epoch
            state.model.stop_training, state.progress.stopped = False, None
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
            metrics=[v for metric in state.model.metrics for v in metric.variables],
            random=random_states(state.model),
        )
