"""A run's checkpoints: every variable that training changes, and its state, in TensorFlow's own format."""

import json
import shutil
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import tensorflow as tf

from elastictrainer.errors import RunError
from elastictrainer.profiler.memory_profile import variable_bytes
from elastictrainer.runs import ownership
from elastictrainer.runs.files import atomic_write, remove_unfinished, set_aside, without_wildcards
from elastictrainer.runs.log import LOG
from elastictrainer.runs.schemas import loads
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

    def restore(self, agree: Optional[Callable[[int], int]] = None) -> Optional[Dict[str, Any]]:
        """Put the newest whole checkpoint's values into the variables.

        Args:
            agree: for processes that train together, which go on from the newest step that all of them have:
                from this process' newest (0 without any, -1 where all are damaged) to that. None: this one
                is alone.

        Returns:
            The state saved with it. None where there is none, or where it is the first one here and another
            process has none: the variables are as they were.

        Raises:
            RunError: there are checkpoints, and all are damaged; or not the one agreed upon.
        """
        remove_unfinished(self.folder)
        beginning = [variable.numpy() for variable in self._variables] if agree else []
        passed_over: List[Path] = []  # whole ones, newer than that of another process
        damaged: List[Path] = []
        # Every process takes part in `agree`, whatever it found: one that raised before it would leave the
        # others waiting.
        newest = self._read_newest(passed_over, damaged)
        step = newest[0] if newest else -1 if damaged else 0
        agreed = agree(step) if agree else step
        if step < 0:
            raise RunError(
                f"no checkpoint in {self.folder} can be read. Start a new run, with another --output."
            )
        if step and agreed == 0 and len(self.saved()) == 1:
            # Another process was stopped before it had written its first.
            for variable, value in zip(self._variables, beginning):
                variable.assign(value)
            shutil.rmtree(self._path(step))
            return None
        # This process was ahead of another one when both were stopped: go back to the common step.
        while newest and newest[0] > agreed:
            passed_over.append(self._path(newest[0]))
            newest = self._read_newest(passed_over, damaged)
        if (newest[0] if newest else 0) != agreed or step and not newest:
            why = {
                0: "another process has no checkpoint",
                -1: "another process has damaged checkpoints only",
            }.get(agreed, f"it has no checkpoint of step {agreed}, from which the other processes go on")
            raise RunError(f"cannot go on from {self.folder}: {why}. Start a new run, with another --output.")
        # Kept, they would be the newest again at the next resumption.
        for path in passed_over:
            shutil.rmtree(path)
        for path in damaged:
            aside = set_aside(path)
            LOG.info(f"what is left of {path.name} is kept as {aside}")
        return newest[1] if newest else None

    def _read_newest(
        self, passed_over: List[Path], damaged: List[Path]
    ) -> Optional[Tuple[int, Dict[str, Any]]]:
        """Read the newest checkpoint that is neither `passed_over` nor `damaged`, which those found so join.

        Returns:
            Its step and state; None where there is none.
        """
        for path in self.saved():
            if path in passed_over or path in damaged:
                continue
            try:
                with without_wildcards(path) as readable:
                    self._read(str(readable / _VARIABLES))
                for variable in self._variables:  # slots of frozen tensors
                    share_zeros(variable)
                return int(path.name.split("-")[1]), loads(self._state.numpy())
            except Exception as error:  # TensorFlow's reader raises many kinds for a damaged file
                reason = (str(error).splitlines() or [""])[0]
                LOG.info(
                    f"the checkpoint {path} is damaged and passed over ({type(error).__name__}: {reason})"
                )
                damaged.append(path)
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
