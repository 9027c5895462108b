"""The display of a run: a progress bar or plain lines, and TensorBoard."""

import sys
from typing import Any, Dict, Optional, Sequence

import tensorflow as tf

from elastictrainer.runs.log import TERMINAL
from elastictrainer.runs.run_folder import RunFolder
from elastictrainer.training.state import RunState

# Keys of metrics.jsonl in an epoch's line: how the value is shown, and what it is multiplied by.
_LINE = {
    "train_loss": ("loss {:.4f}", 1),
    "train_accuracy": ("accuracy {:.1f} %", 100),
    "val_loss": ("validation loss {:.4f}", 1),
    "val_accuracy": ("validation accuracy {:.1f} %", 100),
    "test_loss": ("test loss {:.4f}", 1),
    "test_accuracy": ("test accuracy {:.1f} %", 100),
    "step_ms_median": ("{:.1f} ms/step", 1),
    "ratio": ("ratio {:.3f}", 1),
    "train_seconds": ("{:.1f} s", 1),
}
_TRAIN_SCALARS = (
    "train_loss",
    "train_accuracy",
    "step_ms_median",
    "train_seconds",
    "learning_rate",
    "ratio",
)
# Without tqdm's own estimate, which is of the epoch's steps alone.
_BAR = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}, {rate_fmt}{postfix}]"


def duration(seconds: float) -> str:
    """Format an estimated time: 40 s, 12 min, 3 h 05 min."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


class Display:
    """Shows how a run is going: each epoch is a line, and on a terminal its steps are a progress bar."""

    def __init__(self, run: Optional[RunFolder] = None, quiet: bool = False):
        """
        Args:
            run: the folder of TensorBoard events; None: none are written.
            quiet: print nothing.
        """
        self._quiet = quiet
        self._bar: Any = None
        self._run = run
        self._writers: Dict[str, Any] = {}

    def _writer(self, split: str) -> Any:
        """Return TensorBoard's writer; made when the first event is written. None without a run."""
        if self._run is not None and split not in self._writers:
            self._writers[split] = tf.summary.create_file_writer(str(self._run.events_path / split))
        return self._writers.get(split)

    def say(self, line: str) -> None:
        """Print a line of its own, above a bar if there is one."""
        if not self._quiet:
            TERMINAL.line(line)

    def epoch_begins(self, epoch: int, epochs: Optional[int], steps: int, done: int = 0) -> None:
        """Open a bar of `steps`, of which `done` were done before, for `epoch` (from 1) of `epochs`, None
        where the clock decides.
        """
        if not self._quiet and sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = TERMINAL.bar = tqdm(
                total=steps,
                initial=done,
                desc=_number(epoch, epochs),
                unit="step",
                leave=False,
                bar_format=_BAR,
            )

    def step_done(self, state: RunState, logs: Dict[str, Any]) -> None:
        """Advance the bar; metrics (`logs`) and ratio are read only when there is a bar to show them."""
        if self._bar is None:
            return
        if self._bar.n % 10 == 0:
            shown = {"loss": f"{state.loss:.3f}", "ms": f"{state.step_ms:.0f}"}
            if "accuracy" in logs:
                shown["acc"] = f"{float(logs['accuracy']):.3f}"
            ratio = state.ratio(state.step_ms)
            if ratio is not None:
                shown["ratio"] = f"{ratio:.2f}"
            left_s = state.seconds_left()
            if left_s is not None:
                shown["left"] = duration(left_s)
            self._bar.set_postfix(shown, refresh=False)
        self._bar.update()

    def epoch_ends(
        self, record: Dict[str, Any], epochs: Optional[int], left_s: Optional[float] = None
    ) -> None:
        """Print and plot an epoch of `epochs`.

        Args:
            record: its line of metrics.jsonl.
            epochs: None where the clock decides.
            left_s: seconds that the run will go on.
        """
        self._close_bar()
        words = [_number(record["epoch"], epochs)]
        for key, (shown, factor) in _LINE.items():
            if record.get(key) is not None:
                words.append(shown.format(factor * record[key]))
        if left_s:
            words.append(f"{duration(left_s)} left")
        self.say("  ".join(words))
        self._scalars("train", record, _TRAIN_SCALARS)
        for split in ("val", "test"):
            self._scalars(split, record, (f"{split}_loss", f"{split}_accuracy"))

    def _scalars(self, split: str, record: Dict[str, Any], keys: Sequence[str]) -> None:
        known = [key for key in keys if record.get(key) is not None]
        writer = self._writer(split) if known else None
        if writer is None:
            return
        with writer.as_default():
            for key in known:
                tf.summary.scalar(f"{split}/{key.removeprefix(split + '_')}", record[key], record["step"])
            writer.flush()

    def close(self) -> None:
        """Let go of the terminal and of files."""
        self._close_bar()
        for writer in self._writers.values():
            writer.close()
        self._writers = {}

    def _close_bar(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = TERMINAL.bar = None


def _number(epoch: int, epochs: Optional[int]) -> str:
    """Name an epoch of so many; None: how many is not known."""
    if epochs is None:
        return f"epoch {epoch:>3}"
    return f"epoch {epoch:>{len(str(epochs))}}/{epochs}"
