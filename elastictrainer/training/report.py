"""What a run shows while it goes: a progress bar or plain lines, and TensorBoard."""

import sys
from typing import Any, Callable, Dict, Optional

import numpy as np
import tensorflow as tf

from elastictrainer.runs.run_folder import RunFolder

_MAP_ROWS = 24  # a run of hundreds of selections must not write ever larger pictures


class Report:
    """Says how a run is going. On a terminal the steps of an epoch are a bar, elsewhere each epoch is a line."""

    def __init__(self, run: Optional[RunFolder] = None, quiet: bool = False):
        """
        Args:
            run: where TensorBoard events go; None: nowhere.
            quiet: print nothing.
        """
        self._quiet = quiet
        self._bar: Any = None
        self._writers = {
            split: tf.summary.create_file_writer(str(run.events_path / split)) if run else None
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

    def step_done(
        self, loss: float, accuracy: Any, step_ms: float, ratio_of: Callable[[float], Optional[float]]
    ) -> None:
        """`accuracy`, a metric, and `ratio_of`, from ms to the ratio, are asked only when there is a bar to show them."""
        if self._bar is None:
            return
        if self._bar.n % 10 == 0:
            shown = {"loss": f"{loss:.3f}", "acc": f"{float(accuracy.result()):.3f}", "ms": f"{step_ms:.0f}"}
            ratio = ratio_of(step_ms)
            if ratio is not None:
                shown["ratio"] = f"{ratio:.2f}"
            self._bar.set_postfix(shown, refresh=False)
        self._bar.update()

    def epoch_ends(self, epoch: int, epochs: int, step: int, record: Dict[str, Any]) -> None:
        """`record`: the epoch's line of metrics.jsonl."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
        ratio = "" if record["ratio"] is None else f"  ratio {record['ratio']:.3f}"
        self.say(
            f"epoch {epoch + 1:>{len(str(epochs))}}/{epochs}  loss {record['train_loss']:.4f}  "
            f"accuracy {100 * record['train_accuracy']:.1f} %  test loss {record['test_loss']:.4f}  "
            f"test accuracy {100 * record['test_accuracy']:.1f} %  {record['step_ms_median']:.1f} ms/step{ratio}  "
            f"{record['train_seconds']:.1f} s"
        )
        for split, keys in {
            "train": (
                "train_loss",
                "train_accuracy",
                "step_ms_median",
                "train_seconds",
                "learning_rate",
                "ratio",
            ),
            "test": ("test_loss", "test_accuracy"),
        }.items():
            self._scalars(split, step, {key: record[key] for key in keys if record.get(key) is not None})

    def selection_map(self, step: int, masks: np.ndarray) -> None:
        """`masks`: (intervals, N) bool; the latest ones are drawn, tensors from input (left) to output, the last one below."""
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

    def _scalars(self, split: str, step: int, values: Dict[str, float]) -> None:
        writer = self._writers[split]
        if writer is None:
            return
        with writer.as_default():
            for key, value in values.items():
                name = key if key.startswith(split + "_") else f"{split}_{key}"
                tf.summary.scalar(f"{split}/{name[len(split) + 1 :]}", value, step=step)
            writer.flush()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
        for writer in self._writers.values():
            if writer is not None:
                writer.close()
