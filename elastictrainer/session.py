"""One call of `Trainer.fit`: the loop over minibatches and epochs, for every scheme; saved, and gone on with."""

import contextlib
import math
import time
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Protocol

import numpy as np
import tensorflow as tf

from elastictrainer import optimizers
from elastictrainer.checkpoints import Checkpoints, random_states
from elastictrainer.energy import EnergyMeter
from elastictrainer.errors import RunError
from elastictrainer.evaluation import Evaluator
from elastictrainer.importance import ImportanceEvaluator
from elastictrainer.interruption import Interruption
from elastictrainer.objective import Objective
from elastictrainer.pace import Pace
from elastictrainer.progress import Progress
from elastictrainer.reporting import Report
from elastictrainer.reselection import Reselector
from elastictrainer.steps import StepCache

if TYPE_CHECKING:
    from elastictrainer.trainer import Trainer

PROBE_EPOCH = 1_000_000  # the order of probe minibatches is drawn as if for epochs that no training reaches


class Data(Protocol):
    """What the trainer needs of a data set; `datasets.ImageData` is one."""

    steps_per_epoch: int

    def train(self, epoch: int, first: int = 0) -> Any:
        """The minibatches (inputs, labels) of an epoch from number `first` on, the same for the same epoch."""

    def test(self) -> Any:
        """An iterable of minibatches of the test data."""


class Session:
    """What one call of `fit` works with: the compiled steps, the current selection, and the figures so far."""

    def __init__(self, trainer: "Trainer", data: Data):
        self.trainer = trainer
        self.data = data
        model, optimizer = trainer.model, trainer.optimizer
        optimizers.build(optimizer, model.trainable_weights)
        objective = Objective(model, trainer.loss, trainer.scheme.penalty(model))
        self.accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")
        self.steps = StepCache(objective, optimizer, [self.accuracy])
        self.evaluate = Evaluator(objective)
        self.report = Report(trainer.run, trainer.quiet)
        self.meter = EnergyMeter(trainer.sensor)
        self._training_since: Optional[float] = None
        self.interruption = Interruption()
        self.checkpoints: Optional[Checkpoints] = None
        if trainer.run is not None:
            self.checkpoints = Checkpoints(
                trainer.run.checkpoints_path,
                model=model,
                optimizer=optimizer,
                accuracy=self.accuracy,
                random=random_states(model),
            )
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
        self.progress = Progress()
        self.masks: List[np.ndarray] = []
        self.history: List[Dict[str, Any]] = []
        self._saved_at = time.monotonic()

    def resume(self) -> None:
        """Go on where the newest whole checkpoint was written; from the start where there is none."""
        saved = self.checkpoints.restore(self.report.say)
        self.progress = Progress(**saved) if saved else Progress()
        run, progress = self.trainer.run, self.progress
        run.rewind(progress.epoch, progress.selections_logged)
        if saved is None:
            self.report.say(f"{run.path} has no checkpoint yet: starting from the beginning")
            return
        self.history = run.metrics()
        self.meter.joules = progress.joules
        self.trainer.watch.seconds.update(progress.seconds)
        if progress.selected is not None:
            self.mask = self._mask_of(progress.selected)
        if self.pace is not None:
            self.pace.restore(progress.pace)
            self.reselect.costs_s = list(progress.selecting_s)
            self.masks = [self._mask_of(record["selected"]) for record in run.selections()]
        self.report.say(f"resumed after step {progress.step}, in epoch {progress.epoch + 1} of {self.trainer.epochs}")

    def save(self) -> None:
        """Write a checkpoint, if there is a run folder.

        Raises:
            RunError: a weight is not finite (nothing is written then), or the checkpoint cannot be written.
        """
        if self.checkpoints is None:
            return
        for variable in self.trainer.model.trainable_weights:
            if not bool(tf.reduce_all(tf.math.is_finite(variable))):
                raise self._diverged(f"{variable.name} is not finite")
        progress = self.progress
        with self.trainer.watch.lap("checkpoint"):
            progress.selected = None if self.mask is None else np.flatnonzero(self.mask).tolist()
            progress.seconds = self.trainer.watch.so_far()
            self._note_training(self._training_since is not None)
            if self.pace is not None:
                progress.pace = self.pace.state()
                progress.selecting_s = self.reselect.costs_s
            self.checkpoints.save(progress.step, progress.to_json())
        self._saved_at = time.monotonic()

    def train_epoch(self) -> None:
        """Train on what is left of the epoch, evaluate, write its line, and save."""
        trainer, progress = self.trainer, self.progress
        self.report.epoch_begins(progress.epoch, trainer.epochs, self.data.steps_per_epoch, progress.batch)
        with trainer.watch.lap("steps"):
            self._note_training(True)
            self._train_batches()
            self._note_training(False)
        with trainer.watch.lap("validation"):
            test_loss, test_accuracy = self.evaluate(self.data.test(), self.interruption.check)
        if not math.isfinite(test_loss):
            raise self._diverged(f"the test loss is {test_loss}")
        trained_s = trainer.watch.training()
        median_ms = float(np.median(progress.epoch_ms)) if progress.epoch_ms else 0.0
        record = {
            "epoch": progress.epoch + 1,
            "step": progress.step,
            "train_loss": progress.loss_sum / self.data.steps_per_epoch,
            "train_accuracy": float(self.accuracy.result()),
            "step_ms_median": median_ms,
            "test_loss": test_loss,
            "test_accuracy": test_accuracy,
            "ratio": self.ratio_to_full_step(median_ms),
            "train_seconds": trained_s - progress.trained_s,
            "train_seconds_total": trained_s,
            "flops": progress.flops - (self.history[-1]["flops_total"] or 0.0 if self.history else 0.0) or None,
            "flops_total": progress.flops or None,
            "learning_rate": optimizers.learning_rate_of(trainer.optimizer),
        }
        self.history.append(record)
        if trainer.run:
            trainer.run.add_metrics(record)
        self.report.epoch_ends(progress.epoch, trainer.epochs, progress.step, record)
        progress.epoch_done(trained_s)
        self.save()

    def full_step_ms(self) -> Optional[float]:
        """This run's full step, median: of the full steps among the others, or set apart, or of all where all are."""
        if self.pace is not None:
            return self.pace.full_step_ms()
        measured = self.progress.full_apart_ms or (self.progress.recent_ms if self.mask.all() else [])
        return float(np.median(measured)) if measured else None

    def ratio_to_full_step(self, step_ms: float) -> Optional[float]:
        """`step_ms` over this run's full step; None where every step is one, and before the first."""
        if self.pace is None and not self.progress.full_apart_ms:
            return None
        whole = self.full_step_ms()
        return step_ms / whole if whole else None

    def _note_training(self, going_on: bool) -> None:
        """Account for energy and time of day up to now; from here on training is `going_on` or not."""
        now = time.time()
        if self._training_since is not None:
            self.progress.trained_between(self._training_since, now)
        self._training_since = now if going_on else None
        self.meter.run(going_on)
        self.progress.joules = self.meter.joules

    def _train_batches(self) -> None:
        progress, per_epoch = self.progress, self.data.steps_per_epoch
        if progress.batch == per_epoch:
            return
        if not progress.batch:
            self.accuracy.reset_state()
            if self.pace is None and progress.epoch and progress.epoch % self.trainer.interval == 0:
                self._scheme_interval()
        batches = iter(self.data.train(progress.epoch, progress.batch))
        while progress.batch < per_epoch:
            if self.pace is not None and self.pace.selection_due(progress.step):
                self._select()
            full_now = self.pace is not None and (self.mask is None or self.pace.full_step_due(progress.step))
            if progress.was_full and not full_now:
                resting = [v for v, m in zip(self.trainer.model.trainable_weights, self.mask) if not m]
                optimizers.forget_momentum(self.trainer.optimizer, resting)
            progress.was_full = full_now
            self._train_step(self.everything if full_now else self.mask, batches, full_now)
            self.interruption.check()
            if time.monotonic() - self._saved_at > 60 * self.trainer.checkpoint_minutes:
                self.save()

    def _train_step(self, mask: np.ndarray, batches: Iterator[Any], is_full: bool) -> None:
        """One step on the tensors of `mask`, its minibatch fetched and its time recorded."""
        trainer, progress = self.trainer, self.progress
        start = time.perf_counter()
        x, y = next(batches)
        new = not self.steps.has(mask)
        with trainer.watch.lap("tracing") if new else contextlib.nullcontext():  # the first step with it, included
            loss = float(self.steps.get(mask)(x, y))
        ms = 1e3 * (time.perf_counter() - start)
        if not math.isfinite(loss):
            raise self._diverged(f"the loss is {loss}")
        if not new:
            progress.step_took(ms)
            if self.pace is not None:
                self.pace.record(ms, is_full)
        if trainer.timings is not None:
            progress.predicted_ms += trainer.timings.step_time(mask)
            progress.flops += trainer.timings.step_flops(mask) or 0.0
        progress.step_done(loss)
        self.report.step_done(loss, self.accuracy, ms, self.ratio_to_full_step)

    def _diverged(self, what: str) -> RunError:
        kept = self.checkpoints.saved() if self.checkpoints else []
        return RunError(
            f"{what} at step {self.progress.step} (epoch {self.progress.epoch + 1}): training diverged. "
            "Try a lower --learning-rate"
            + (f"; the last good checkpoint is {kept[0]}." if kept else ".")
        )

    def _select(self) -> None:
        """Choose the tensors to train from here on."""
        trainer, progress = self.trainer, self.progress
        probe = iter(self.data.train(PROBE_EPOCH + progress.step))
        self.mask, record = self.reselect(progress.step, probe, self.mask)
        self.masks.append(self.mask)
        self._log_selection(record)
        self.report.say(
            f"selected {len(record['selected'])} of {len(self.mask)} tensors, predicted "
            f"{record['predicted_ratio']:.3f} of a full step, with "
            f"{100 * record['importance_selected'] / max(record['importance_positive'], 1e-30):.0f} % of the importance"
        )
        if trainer.run:
            self.report.selection_map(progress.step, np.array(self.masks))

    def _scheme_interval(self) -> None:
        figures = self.trainer.scheme.at_interval(self.trainer.model, self.trainer.optimizer)
        if figures:
            self._log_selection({"step": self.progress.step, **figures})

    def _log_selection(self, record: Dict[str, Any]) -> None:
        if self.trainer.run:
            self.trainer.run.add_selection({"epoch": self.progress.epoch, **record})
            self.progress.selections_logged += 1

    def _mask_of(self, selected: List[int]) -> np.ndarray:
        mask = np.zeros(len(self.everything), bool)
        mask[selected] = True
        return mask
