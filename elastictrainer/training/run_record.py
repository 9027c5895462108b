"""The files that a run leaves in its folder, and the lines it shows."""

import contextlib
import time
from typing import Any, ContextManager, Dict, Optional

from elastictrainer.errors import UsageError
from elastictrainer.runs import environment
from elastictrainer.runs.run_folder import RunFolder
from elastictrainer.steps import optimizers
from elastictrainer.steps.keras_compat.model_files import save_model
from elastictrainer.training.callback import TrainerCallback
from elastictrainer.training.display import Display
from elastictrainer.training.evaluation import Evaluating
from elastictrainer.training.stopwatch import CHECKPOINT


class RunRecord(TrainerCallback):
    """Writes metrics.jsonl, selections.jsonl, TensorBoard events, the trained model and
    summary.json, and shows each epoch. Pass it after `Evaluation` or `BestWeights`, whose results it records.

    Attributes:
        writing_s: seconds that the model took to be written the latest time; 0 before the first.
    """

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
        self.writing_s = 0.0

    def fit_context(self) -> ContextManager[Any]:
        """Close the display at the end."""
        return contextlib.closing(self._display)

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        """Raise UsageError if another run has written."""
        if self._run is None:
            return
        there = {"metrics": len(self._run.metrics()), "selections": len(self._run.selections())}
        if there != self._written:
            raise UsageError(
                f"{self._run.path} holds another run. Choose another folder, or go on with it: "
                "Checkpointing(..., resume=True)."
            )

    def on_epoch_begin(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """Show that an epoch begins."""
        state = self.run_state
        self._display.epoch_begins(
            state.progress.epoch + 1, self._epochs, state.clock.steps_per_epoch, state.progress.batch
        )

    def on_train_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """Show the step."""
        self._display.step_done(self.run_state, logs or {})

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """Write and show the epoch's line."""
        state, progress, logs = self.run_state, self.run_state.progress, logs or {}
        trained_s, step_ms = state.clock.watch.training(), state.epoch_step_ms()
        part = next((c.part for c in state.callbacks if isinstance(c, Evaluating)), "val")
        record = {
            "epoch": progress.epoch + 1,
            "step": progress.step,
            "train_loss": progress.loss_sum / progress.batch,
            "train_accuracy": _number(logs, "accuracy"),
            "step_ms_median": step_ms or 0.0,
            "test_loss": None,
            "test_accuracy": None,
            # Keras' name, whatever part of the data it is.
            **{f"{part}_{name}": _number(logs, f"val_{name}") for name in ("loss", "accuracy")},
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
    def _epochs(self) -> Optional[int]:
        return None if self.run_state.clock.by_clock else self.run_state.clock.epochs

    def on_selection(self, record: Dict[str, Any]) -> None:
        """Write the selection."""
        if self._run is None:
            return
        self._run.add_selection(record)
        self._written["selections"] += 1

    def on_head(self, record: Dict[str, Any]) -> None:
        """Write and show the solved head: from here on there is a usable model in the run folder."""
        trained_s = self.run_state.clock.watch.training()
        line: Dict[str, Any] = {
            "epoch": 0,
            "step": 0,
            "train_loss": record["loss"],
            "images": record["images"],
            "tested_one_of": record.get("one_of"),
            "train_seconds": trained_s,
            "train_seconds_total": trained_s,
            "test_loss": record.get("test_loss"),
            "test_accuracy": record.get("test_accuracy"),
            **{key: record[key] for key in ("val_loss", "val_accuracy") if key in record},
        }
        for part, words in (("test", "test"), ("val", "validation")):
            if line.get(f"{part}_accuracy") is not None:
                some = f" (one of {record['one_of']} images)" if record.get("one_of", 1) > 1 else ""
                self._display.say(
                    f"solved head: {words} accuracy {100 * line[f'{part}_accuracy']:.1f} %{some}"
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
        """Return the state that a checkpoint keeps."""
        return self._written

    def restore(self, state: Optional[Dict[str, int]]) -> None:
        """Continue from a checkpoint; lines written after it are removed."""
        self._written = state or {"metrics": 0, "selections": 0}
        if self._run is not None:
            self._run.rewind(self._written["metrics"], self._written["selections"])
            self.run_state.selections[:] = self._run.selections()

    def conclude(self) -> Dict[str, Any]:
        """Return peak memory, and the entries given as `about`."""
        return {
            "peak_rss_bytes": environment.peak_rss_bytes(),
            "peak_gpu_bytes": environment.peak_gpu_bytes(),
            **self._about,
        }

    def on_fit_end(self, summary: Dict[str, Any]) -> None:
        """Write the model and the summary."""
        if self._run is not None:
            save_model(self.run_state.model, self._run.model_path)
            self._run.write_summary(summary)


def _number(logs: Dict[str, Any], name: str) -> Optional[float]:
    return float(logs[name]) if name in logs else None
