"""What a run shows while it goes: a progress bar or plain lines, and TensorBoard."""

import functools
import sys
from typing import Any, Dict, Optional, Sequence

import numpy as np
import tensorflow as tf

from elastictrainer.runs.run_folder import RunFolder
from elastictrainer.training.state import RunState

_TRAIN_SCALARS = (
    "train_loss",
    "train_accuracy",
    "step_ms_median",
    "train_seconds",
    "learning_rate",
    "ratio",
)
_MAP_ROWS = 24  # a run of hundreds of selections must not write ever larger pictures


class Report:
    """Shows how a run is going: each epoch is a line, and on a terminal its steps are a progress bar."""

    def __init__(self, run: Optional[RunFolder] = None, quiet: bool = False):
        """
        Args:
            run: where TensorBoard events go; None: nowhere.
            quiet: print nothing.
        """
        self._quiet = quiet
        self._bar: Any = None
        self._run = run

    @functools.cached_property
    def _writers(self) -> Dict[str, Any]:
        """TensorBoard's, by split; made when the first event is written."""
        events = self._run and self._run.events_path
        return {
            split: tf.summary.create_file_writer(str(events / split)) if events else None
            for split in ("train", "test")
        }

    def say(self, line: str) -> None:
        """A line of its own, above a bar if there is one."""
        if self._quiet:
            return
        if self._bar is not None:
            self._bar.write(line)
        else:
            print(line, flush=True)

    def epoch_begins(self, epoch: int, epochs: int, steps: int, done: int = 0) -> None:
        """`steps` make an epoch, `done` of them were done before."""
        if not self._quiet and sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(
                total=steps, initial=done, desc=f"epoch {epoch + 1}/{epochs}", unit="step", leave=False
            )

    def step_done(self, state: RunState, logs: Dict[str, Any]) -> None:
        """A step more; metrics (`logs`) and ratio are read only when there is a bar to show them."""
        if self._bar is None:
            return
        if self._bar.n % 10 == 0:
            shown = {"loss": f"{state.loss:.3f}", "ms": f"{state.step_ms:.0f}"}
            if "accuracy" in logs:
                shown["acc"] = f"{float(logs['accuracy']):.3f}"
            ratio = state.ratio(state.step_ms)
            if ratio is not None:
                shown["ratio"] = f"{ratio:.2f}"
            self._bar.set_postfix(shown, refresh=False)
        self._bar.update()

    def epoch_ends(self, epoch: int, epochs: int, step: int, record: Dict[str, Any]) -> None:
        """`record`: the epoch's line of metrics.jsonl."""
        self._close_bar()
        words = [f"epoch {epoch + 1:>{len(str(epochs))}}/{epochs}"]
        for key, name, scale, digits in (
            ("train_loss", "loss {}", 1, 4),
            ("train_accuracy", "accuracy {} %", 100, 1),
            ("test_loss", "test loss {}", 1, 4),
            ("test_accuracy", "test accuracy {} %", 100, 1),
            ("step_ms_median", "{} ms/step", 1, 1),
            ("ratio", "ratio {}", 1, 3),
            ("train_seconds", "{} s", 1, 1),
        ):
            if record[key] is not None:
                words.append(name.format(f"{scale * record[key]:.{digits}f}"))
        self.say("  ".join(words))
        self._scalars("train", step, record, _TRAIN_SCALARS)
        self._scalars("test", step, record, ("test_loss", "test_accuracy"))

    def selection_map(self, step: int, masks: np.ndarray) -> None:
        """Draw the latest `masks`, (selections, N) bool, the last one below; tensors from input to output."""
        writer = self._writers["train"]
        if writer is None:
            return
        cell = 8
        pixels = np.kron(masks[-_MAP_ROWS:], np.ones((cell, max(1, 640 // masks.shape[1])), np.float32))[
            None, :, :, None
        ]
        with writer.as_default():
            tf.summary.image("train/selection", pixels, step=step)
            writer.flush()

    def _scalars(self, split: str, step: int, record: Dict[str, Any], keys: Sequence[str]) -> None:
        writer = self._writers[split]
        if writer is None:
            return
        with writer.as_default():
            for key in keys:
                if record[key] is not None:
                    tf.summary.scalar(f"{split}/{key.removeprefix(split + '_')}", record[key], step=step)
            writer.flush()

    def close(self) -> None:
        """Let go of the terminal and of files."""
        self._close_bar()
        for writer in vars(self).pop("_writers", {}).values():
            if writer is not None:
                writer.close()

    def _close_bar(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
