"""A run's checkpoints: every variable that training changes, and its state, in TensorFlow's own format."""

import json
import shutil
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

import tensorflow as tf

from elastictrainer.errors import RunError
from elastictrainer.profiler.memory_profile import variable_bytes
from elastictrainer.runs import ownership
from elastictrainer.runs.files import atomic_write, loads, remove_unfinished, set_aside, without_wildcards
from elastictrainer.runs.log import LOG
from elastictrainer.steps.keras_compat.variables import tf_variables
from elastictrainer.steps.zeros import share_zeros

_KEEP = 2  # the newest, and one more should it be damaged
_VARIABLES = "variables"
_AT_ONCE = 100e6  # bytes: TensorFlow reads all that it is asked for before it assigns any of it


class CheckpointFiles:
    """Saves whole checkpoints, keeps the last two, and restores the newest that is not damaged."""

    def __init__(self, folder: Path, **variables: List[Any]):
        """
        Args:
            folder: of all of them, each a folder of its own.
            variables: to save, lists by a name of the caller's. All exist already.
        """
        self.folder = folder
        self._groups = {name: tf_variables(members) for name, members in variables.items()}
        self._variables = [variable for members in self._groups.values() for variable in members]
        # The state stands among the variables, so that TensorFlow's checksums cover it too.
        self._state = tf.Variable("", dtype=tf.string, trainable=False)
        self._checkpoint = tf.train.Checkpoint(state=self._state, **self._groups)

    def saved(self) -> List[Path]:
        """Return the checkpoints there are, the newest first."""
        return ownership.checkpoints(self.folder)

    def save(self, step: int, state: Dict[str, Any]) -> None:
        """Write a checkpoint, then remove those that are too old.

        Args:
            step: training steps done; names the checkpoint.
            state: JSON values; `restore` returns them.

        Raises:
            RunError: it cannot be written. The checkpoints before it are as they were.
        """
        path = self._path(step)
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

    def restore(self) -> Optional[Dict[str, Any]]:
        """Put the newest whole checkpoint's values into the variables; damaged ones are set aside.

        Returns:
            The state saved with it; None where there is no checkpoint.

        Raises:
            RunError: there are checkpoints, and all are damaged.
        """
        remove_unfinished(self.folder)
        saved = self.saved()
        for number, path in enumerate(saved):
            try:
                with without_wildcards(path) as readable:
                    self._read(str(readable / _VARIABLES))
                state: Dict[str, Any] = loads(self._state.numpy())
            except Exception as error:  # TensorFlow's reader raises many kinds for a damaged file
                reason = (str(error).splitlines() or [""])[0]
                LOG.info(
                    f"the checkpoint {path} is damaged and passed over ({type(error).__name__}: {reason})"
                )
                continue
            for variable in self._variables:  # slots of frozen tensors
                share_zeros(variable)
            for damaged in saved[:number]:
                LOG.info(f"what is left of {damaged.name} is kept as {set_aside(damaged)}")
            return state
        if saved:
            raise RunError(
                f"no checkpoint in {self.folder} can be read. Start a new run, with another --output."
            )
        return None

    def _read(self, prefix: str) -> None:
        """Read the variables of one checkpoint, a part of them at a time; raises if any is missing there."""
        state = tf.train.Checkpoint(state=self._state)
        state.read(prefix).expect_partial().assert_existing_objects_matched()
        there = len(tf.train.list_variables(prefix)) - 1  # one entry describes the others
        expected = len({id(variable) for variable in self._variables}) + 1
        if there != expected:
            raise ValueError(f"it has {there} variables, and this run {expected}")
        for part in self._parts():
            tf.train.Checkpoint(**part).read(prefix).expect_partial().assert_existing_objects_matched()

    def _parts(self) -> Iterator[Dict[str, Dict[str, Any]]]:
        """Yield parts of the variables, each of few bytes: by group, then by place in it.

        A dictionary with these keys is read as the list was written.
        """
        for name, members in self._groups.items():
            part: Dict[str, Any] = {}
            size = 0.0
            for place, variable in enumerate(members):
                if part and size + variable_bytes([variable]) > _AT_ONCE:
                    yield {name: part}
                    part, size = {}, 0.0
                part[str(place)] = variable
                size += variable_bytes([variable])
            if part:
                yield {name: part}

    def _path(self, step: int) -> Path:
        return self.folder / ownership.checkpoint_name(step)
