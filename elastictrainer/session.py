"""One call of `Trainer.fit`: the loop over an epoch's minibatches, for every scheme."""

import contextlib
import math
import time
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Protocol

import numpy as np
import tensorflow as tf

from elastictrainer import optimizers
from elastictrainer.errors import RunError
from elastictrainer.evaluation import Evaluator
from elastictrainer.importance import ImportanceEvaluator
from elastictrainer.objective import Objective
from elastictrainer.pace import Pace
from elastictrainer.reporting import Report
from elastictrainer.reselection import Reselector
from elastictrainer.steps import StepCache

if TYPE_CHECKING:
    from elastictrainer.trainer import Trainer

PROBE_EPOCH = 1_000_000  # the order of probe minibatches is drawn as if for epochs that no training reaches


class Data(Protocol):
    """What the trainer needs of a data set; `datasets.ImageData` is one."""

    steps_per_epoch: int

    def train(self, epoch: int) -> Any:
        """An iterable of minibatches (inputs, labels), the same for the same epoch."""

    def test(self) -> Any:
        """An iterable of minibatches of the test data."""


class Session:
    """What one call of `fit` works with: the compiled steps, the current selection, and the figures so far."""

    def __init__(self, trainer: "Trainer", data: Data):
        self.trainer = trainer
        model, optimizer = trainer.model, trainer.optimizer
        optimizers.build(optimizer, model.trainable_weights)
        objective = Objective(model, trainer.loss, trainer.scheme.penalty(model))
        self.accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")
        self.steps = StepCache(objective, optimizer, [self.accuracy])
        self.evaluate = Evaluator(objective)
        self.report = Report(trainer.run, trainer.quiet)
        self.manager = None
        if trainer.run is not None:
            checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
            self.manager = tf.train.CheckpointManager(checkpoint, str(trainer.run.checkpoints_path), max_to_keep=2)
        self.everything = np.ones(len(model.trainable_weights), bool)
        self.pace: Optional[Pace] = None
        self.mask: Optional[np.ndarray] = None  # none selected yet: every tensor trains
        if trainer.selects:
            self.pace = Pace(trainer.rho, trainer.timings, trainer.epochs, data.steps_per_epoch, trainer.interval)
            self.reselect = Reselector(
                ImportanceEvaluator(objective, optimizer, trainer.scheme.importance_metric),
                trainer.timings,
                self.pace,
                trainer.watch,
                trainer.importance_batches,
                trainer.solver,
                trainer.feedback,
            )
        else:
            self.mask = trainer.scheme.mask(model)
        self._was_full = False
        self.step = 0
        self.all_ms: List[float] = []  # of every step but the first with each compiled graph
        self.apart_ms: List[float] = []  # full steps measured apart, for a scheme that makes none
        self.predicted_ms = 0.0
        self.masks: List[np.ndarray] = []
        self.history: List[Dict[str, Any]] = []

    def train_epoch(self, epoch: int, data: Data) -> Dict[str, float]:
        """Train on every minibatch of an epoch; returns the epoch's training figures."""
        self.accuracy.reset_state()
        losses: List[float] = []
        first_ms = len(self.all_ms)
        if self.pace is None and epoch and epoch % self.trainer.interval == 0:
            self._scheme_interval(epoch)
        batches = iter(data.train(epoch))
        for _ in range(data.steps_per_epoch):
            if self.pace is not None and self.pace.selection_due(self.step):
                self._select(epoch, data)
            full_now = self.pace is not None and (self.mask is None or self.pace.full_step_due(self.step))
            if self._was_full and not full_now:
                resting = [v for v, m in zip(self.trainer.model.trainable_weights, self.mask) if not m]
                optimizers.forget_momentum(self.trainer.optimizer, resting)
            self._was_full = full_now
            losses.append(self._train_step(self.everything if full_now else self.mask, batches, epoch, full_now))
        epoch_ms = self.all_ms[first_ms:]
        return {
            "train_loss": float(np.mean(losses)),
            "train_accuracy": float(self.accuracy.result()),
            "step_ms_median": float(np.median(epoch_ms)) if epoch_ms else 0.0,
        }

    def full_step_ms(self) -> Optional[float]:
        """This run's full step, median: of the full steps among the others, or set apart, or of all where all are."""
        if self.pace is not None:
            return self.pace.full_step_ms()
        measured = self.apart_ms or (self.all_ms if self.mask.all() else [])
        return float(np.median(measured)) if measured else None

    def ratio_to_full_step(self, step_ms: float) -> Optional[float]:
        """`step_ms` over this run's full step; None where every step is one, and before the first."""
        if self.pace is None and not self.apart_ms:
            return None
        whole = self.full_step_ms()
        return step_ms / whole if whole else None

    def _train_step(self, mask: np.ndarray, batches: Iterator[Any], epoch: int, is_full: bool) -> float:
        """One step on the tensors of `mask`, its minibatch fetched and its time recorded; returns the loss."""
        trainer = self.trainer
        start = time.perf_counter()
        x, y = next(batches)
        new = not self.steps.has(mask)
        with trainer.watch.lap("tracing") if new else contextlib.nullcontext():  # the first step with it, included
            loss = float(self.steps.get(mask)(x, y))
        ms = 1e3 * (time.perf_counter() - start)
        if not math.isfinite(loss):
            raise RunError(
                f"the loss is {loss} at step {self.step} (epoch {epoch + 1}): training diverged. "
                "Try a lower --learning-rate."
            )
        if not new:
            self.all_ms.append(ms)
            if self.pace is not None:
                self.pace.record(ms, is_full)
        if trainer.timings is not None:
            self.predicted_ms += trainer.timings.step_time(mask)
        self.step += 1
        self.report.step_done(loss, self.accuracy, ms, self.ratio_to_full_step)
        return loss

    def _select(self, epoch: int, data: Data) -> None:
        """Choose the tensors to train from here on."""
        trainer = self.trainer
        self.mask, record = self.reselect(self.step, iter(data.train(PROBE_EPOCH + self.step)), self.mask)
        self.masks.append(self.mask)
        if trainer.run:
            trainer.run.add_selection({"epoch": epoch, **record})
        self.report.say(
            f"selected {len(record['selected'])} of {len(self.mask)} tensors, predicted "
            f"{record['predicted_ratio']:.3f} of a full step, with "
            f"{100 * record['importance_selected'] / max(record['importance_positive'], 1e-30):.0f} % of the importance"
        )
        self.report.selection_map(self.step, np.array(self.masks))

    def _scheme_interval(self, epoch: int) -> None:
        figures = self.trainer.scheme.at_interval(self.trainer.model, self.trainer.optimizer)
        if figures and self.trainer.run:
            self.trainer.run.add_selection({"epoch": epoch, "step": self.step, **figures})
