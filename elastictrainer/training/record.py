"""The record of a run: the files that it leaves in its folder, and the lines and the bar that it shows."""

import contextlib
import sys
import time
from typing import Any, ContextManager, Dict, Optional

import tensorflow as tf

from elastictrainer.errors import UsageError
from elastictrainer.runs import environment
from elastictrainer.runs.log import LOG, TERMINAL, printed
from elastictrainer.runs.run_folder import RunFolder, spread
from elastictrainer.steps import optimizers
from elastictrainer.steps.keras_compat.model_files import save_model
from elastictrainer.training.callbacks import TrainerCallback
from elastictrainer.training.clock import CHECKPOINT
from elastictrainer.training.evaluation import PARTS, Evaluation
from elastictrainer.training.state import RunState, Values

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
        """Show nothing if `quiet`; write TensorBoard events into `run`, if any."""
        self._quiet = quiet
        self._bar: Any = None
        self._run = run
        self._writers: Values = {}

    def say(self, line: str) -> None:
        if not self._quiet:
            with printed():
                LOG.info(line)

    def epoch_begins(self, epoch: int, epochs: Optional[int], steps: int, done: int = 0) -> None:
        """Open a bar for `epoch` (from 1) of `epochs` (None: by the clock), with `done` of its steps."""
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

    def step_done(self, state: RunState, logs: Values) -> None:
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

    def epoch_ends(self, record: Values, epochs: Optional[int], left_s: Optional[float] = None) -> None:
        """Print and plot an epoch of `epochs`, None: by the clock, from its line of metrics.jsonl."""
        self._close_bar()
        words = [_number(record["epoch"], epochs)]
        for key, (shown, factor) in _LINE.items():
            if record.get(key) is not None:
                some = spread(record, factor) if key in ("test_accuracy", "val_accuracy") else ""
                words.append(shown.format(factor * record[key]) + some)
        if left_s:
            words.append(f"{duration(left_s)} left")
        self.say("  ".join(words))
        self._write_events(record)

    def _write_events(self, record: Values) -> None:
        """Write an epoch's figures for TensorBoard, into a folder for each part of the data."""
        if self._run is None:
            return
        for key in (*_LINE, "learning_rate"):
            if record.get(key) is None:
                continue
            part, _, name = key.partition("_")
            part, name = (part, name) if part in ("train", *PARTS) else ("train", key)
            if part not in self._writers:
                self._writers[part] = tf.summary.create_file_writer(str(self._run.events_path / part))
            with self._writers[part].as_default():
                tf.summary.scalar(f"{part}/{name}", record[key], record["step"])
        for writer in self._writers.values():
            writer.flush()

    def close(self) -> None:
        self._close_bar()
        for writer in self._writers.values():
            writer.close()
        self._writers = {}

    def _close_bar(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = TERMINAL.bar = None


def _number(epoch: int, epochs: Optional[int]) -> str:
    if epochs is None:
        return f"epoch {epoch:>3}"
    return f"epoch {epoch:>{len(str(epochs))}}/{epochs}"


class RunRecord(TrainerCallback):
    """Writes the run's JSON files, TensorBoard events and the trained model, and shows each epoch."""

    def __init__(self, run: Optional[RunFolder] = None, quiet: bool = False, **about: Any) -> None:
        """
        Args:
            run: the folder to write to; None: nothing is written.
            quiet: print nothing.
            about: more figures for summary.json, such as the seed.
        """
        super().__init__()
        self._run, self._about = run, about
        self._display = Display(run, quiet)
        self._written = {"metrics": 0, "selections": 0}  # lines of the two files
        self.writing_s = 0.0  # that the model took to be written the latest time; 0 before the first

    def fit_context(self) -> ContextManager[Any]:
        return contextlib.closing(self._display)

    def on_train_begin(self, logs: Optional[Values] = None) -> None:
        """Raise UsageError if another run has written."""
        if self._run is None:
            return
        there = {"metrics": len(self._run.metrics()), "selections": len(self._run.selections())}
        if there != self._written:
            raise UsageError(
                f"{self._run.path} holds another run. Choose another folder, or go on with it: "
                "Checkpointing(..., resume=True)."
            )

    def on_epoch_begin(self, epoch: int, logs: Optional[Values] = None) -> None:
        state = self.run_state
        self._display.epoch_begins(
            state.progress.epoch + 1, self._epochs, state.clock.steps_per_epoch, state.progress.batch
        )

    def on_train_batch_end(self, batch: int, logs: Optional[Values] = None) -> None:
        self._display.step_done(self.run_state, logs or {})

    def on_epoch_end(self, epoch: int, logs: Optional[Values] = None) -> None:
        state, progress, logs = self.run_state, self.run_state.progress, logs or {}
        trained_s, step_ms = state.clock.watch.training(), state.epoch_step_ms()
        record = {
            "epoch": progress.epoch + 1,
            "step": progress.step,
            "train_loss": progress.loss_sum / progress.batch,
            "train_accuracy": _value(logs, "accuracy"),
            "step_ms_median": step_ms or 0.0,
            **self._evaluated(logs),
            "ratio": state.ratio(step_ms),
            "train_seconds": trained_s - progress.trained_s,
            "train_seconds_total": trained_s,
            "flops": progress.flops - progress.epochs_flops or None,
            "flops_total": progress.flops or None,
            "learning_rate": optimizers.learning_rate_of(state.model.optimizer),
        }
        if self._run:
            self._run.add_metrics(record)
            self._written["metrics"] += 1
        over = bool(progress.stopped or state.model.stop_training)
        if self._run and state.clock.by_clock and not over and "val_accuracy" in logs:
            self._save(self._run)  # what an interruption leaves has been evaluated
        self._display.epoch_ends(record, self._epochs, None if over else state.seconds_left())
        if progress.stopped:
            self._display.say(f"ended after epoch {progress.epoch + 1}: {progress.stopped}")

    @property
    def _part(self) -> str:
        """Return the part of the data that epochs are evaluated on: "test" or "val"."""
        return next((c.part for c in self.run_state.callbacks if isinstance(c, Evaluation)), "val")

    def _evaluated(self, logs: Values) -> Dict[str, Optional[float]]:
        """Return the figures of an evaluation by our keys; Keras' are `val_...` for any part."""
        found = {f"{self._part}_{name}": _value(logs, f"val_{name}") for name in ("loss", "accuracy")}
        about = {"evaluated_images": None, "accuracy_error": None, **self.run_state.evaluated}
        return {"test_loss": None, "test_accuracy": None, **found, **about}

    @property
    def _epochs(self) -> Optional[int]:
        return None if self.run_state.clock.by_clock else self.run_state.clock.epochs

    def on_selection(self, record: Values) -> None:
        if self._run is None:
            return
        self._run.add_selection(record)
        self._written["selections"] += 1

    def on_head(self, record: Values) -> None:
        """Write and show the solved head: from here on there is a usable model in the run folder."""
        trained_s, part = self.run_state.clock.watch.training(), self._part
        line: Values = {
            "epoch": self.run_state.progress.epoch,
            "step": self.run_state.progress.step,
            "train_loss": record["loss"],
            "images": record["images"],
            "train_seconds": trained_s - self.run_state.progress.trained_s,
            "train_seconds_total": trained_s,
            **self._evaluated(record),
        }
        accuracy = line[f"{part}_accuracy"]
        if accuracy is not None:
            self._display.say(
                f"solved head: {PARTS[part]} accuracy {100 * accuracy:.1f} %{spread(line, 100)}"
            )
        self.run_state.progress.trained_s = trained_s
        if self._run:
            self._save(self._run)
            self._run.add_metrics(line)
            self._written["metrics"] += 1

    def _save(self, run: RunFolder) -> None:
        began = time.perf_counter()
        with self.run_state.clock.watch.lap(CHECKPOINT):
            save_model(self.run_state.model, run.model_path)
        self.writing_s = time.perf_counter() - began

    def state(self) -> Dict[str, int]:
        return self._written

    def restore(self, state: Optional[Dict[str, int]]) -> None:
        """Continue from a checkpoint; lines written after it are removed."""
        self._written = state or {"metrics": 0, "selections": 0}
        if self._run is not None:
            self._run.rewind(self._written["metrics"], self._written["selections"])
            self.run_state.selections[:] = self._run.selections()

    def conclude(self) -> Values:
        return {
            "peak_rss_bytes": environment.peak_rss_bytes(),
            "peak_gpu_bytes": environment.peak_gpu_bytes(),
            **self._about,
        }

    def on_fit_end(self, summary: Values) -> None:
        if self._run is not None:
            save_model(self.run_state.model, self._run.model_path)
            self._run.write_summary(summary)


def _value(logs: Values, name: str) -> Optional[float]:
    return float(logs[name]) if name in logs else None
