"""A run's checkpoints: every variable that training changes, and how far the run is, in TensorFlow's own format."""

import json
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import tensorflow as tf

from elastictrainer.errors import RunError
from elastictrainer.files import remove_unfinished, written_beside
from elastictrainer.keras_stack import tf_variables

_KEEP = 2
_VARIABLES = "variables"


class Checkpoints:
    """Saves whole checkpoints, keeps the last two, and restores the newest that is not damaged."""

    def __init__(self, folder: Path, **variables: List[Any]):
        """
        Args:
            folder: where they are kept, each a folder of its own.
            variables: what to save, lists of variables by a name of the caller's. All exist already.
        """
        self.folder = folder
        self._progress = tf.Variable("", dtype=tf.string, trainable=False)
        # How far the run is stands among the variables, so that TensorFlow's checksums cover it too.
        self._checkpoint = tf.train.Checkpoint(
            progress=self._progress, **{name: tf_variables(of_it) for name, of_it in variables.items()}
        )

    def saved(self) -> List[Path]:
        """The checkpoints there are, the newest first."""
        return sorted(self.folder.glob("step-*"), reverse=True)

    def save(self, step: int, progress: Dict[str, Any]) -> None:
        """Write a checkpoint, then remove those that are too old.

        Args:
            step: training steps done; names the checkpoint.
            progress: JSON values; `restore` returns them.

        Raises:
            RunError: it cannot be written. The checkpoints before it are as they were.
        """
        path = self.folder / f"step-{step:09d}"
        self._progress.assign(json.dumps(progress))
        try:
            if not path.exists():
                with written_beside(path) as beside:
                    beside.mkdir()
                    self._checkpoint.write(str(beside / _VARIABLES))
        except (OSError, tf.errors.OpError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error.message).splitlines()[0]
            kept = self.saved()
            raise RunError(
                f"cannot write the checkpoint {path}: {reason}. "
                + (f"The last good one is {kept[0]}." if kept else "There is none before it.")
            ) from None
        for old in self.saved()[_KEEP:]:
            _remove(old)

    def restore(self, say: Callable[[str], None]) -> Optional[Dict[str, Any]]:
        """Put the newest whole checkpoint's values into the variables.

        Args:
            say: told of every checkpoint that is damaged and passed over.

        Returns:
            The progress saved with it; None where there is no checkpoint.

        Raises:
            RunError: there are checkpoints, and all are damaged.
        """
        remove_unfinished(self.folder)
        damaged = []
        for path in self.saved():
            try:
                self._checkpoint.read(str(path / _VARIABLES)).assert_consumed()
                progress = json.loads(self._progress.numpy())
            except Exception as error:  # TensorFlow's reader raises many kinds for a damaged file
                reason = (str(error).splitlines() or [""])[0]
                say(f"the checkpoint {path} is damaged and passed over ({type(error).__name__}: {reason})")
                damaged.append(path)
                continue
            for bad in damaged:
                _remove(bad)
            return progress
        if damaged:
            raise RunError(f"no checkpoint in {self.folder} can be read. Start the run anew with --overwrite.")
        return None


def _remove(path: Path) -> None:
    for file in path.iterdir():
        file.unlink()
    path.rmdir()
