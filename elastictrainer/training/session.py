"""One call of `Training.fit`: the loop over minibatches and epochs, for every scheme; saved, and gone on with."""

import math
import time
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Protocol

import numpy as np
import tensorflow as tf

from elastictrainer.errors import Interrupted, RunError
from elastictrainer.selection.elastic import SelectedTensors
from elastictrainer.selection.fixed import FixedTensors
from elastictrainer.selection.schedule import Plan
from elastictrainer.steps import optimizers
from elastictrainer.steps.compiled_step import StepCache
from elastictrainer.steps.keras_compat import name_of, random_states
from elastictrainer.steps.objective import Objective
from elastictrainer.training.checkpoints import Checkpoints
from elastictrainer.training.energy import EnergyMeter
from elastictrainer.training.evaluation import Evaluator
from elastictrainer.training.interruption import Interruption
from elastictrainer.training.one_step import Stepper
from elastictrainer.training.progress import Progress
from elastictrainer.training.report import Report
from elastictrainer.training.stopwatch import CHECKPOINT, LOOP, VALIDATION

if TYPE_CHECKING:
    from elastictrainer.training.training import Training

_STEPS_BETWEEN_AGREEMENTS = 5  # of processes that train together; one takes milliseconds
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

    def __init__(self, trainer: "Training", data: Data):
        self.trainer = trainer
        self.data = data
        model, optimizer = trainer.model, trainer.optimizer
        optimizers.build(optimizer, model.trainable_weights)
        self.workers = trainer.workers
        objective = Objective(
            model, trainer.loss, trainer.scheme.penalty(model), self.workers and self.workers.mean
        )
        self.accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")
        self.steps = StepCache(objective, optimizer, [self.accuracy])
        self.evaluate = Evaluator(objective, self.workers)
        self.report = Report(trainer.run, trainer.quiet)
        self.meter = EnergyMeter(trainer.sensor)
        self._training_since: Optional[float] = None
        self.interruption = Interruption()
        self.checkpoints: Optional[Checkpoints] = None
        if trainer.run is not None:
            self.checkpoints = Checkpoints(
                trainer.run.checkpoints_path,
                model=model.variables,
                optimizer=optimizers.variables_of(optimizer),
                accuracy=self.accuracy.variables,
                random=random_states(model),
            )
        self.progress = Progress()
        self.tensors = self._selected_tensors() if trainer.selects else self._fixed_tensors()
        self.stepper = Stepper(self.tensors, self.steps, trainer.watch, self.progress)
        self.history: List[Dict[str, Any]] = []
        self._saved_at = time.monotonic()

    def _fixed_tensors(self) -> FixedTensors:
        trainer = self.trainer
        return FixedTensors(
            trainer.scheme,
            trainer.model,
            trainer.optimizer,
            trainer.selection.interval,
            trainer.timings,
            self._log_selection,
        )

    def _selected_tensors(self) -> SelectedTensors:
        trainer, data = self.trainer, self.data
        return SelectedTensors(
            trainer.selection,
            trainer.scheme.importance_metric,
            trainer.timings,
            Plan(trainer.epochs, data.steps_per_epoch, trainer.selection.interval),
            self.steps,
            trainer.watch,
            probe=lambda step: iter(data.train(PROBE_EPOCH + step)),
            log=self._log_selection,
            say=self.report.say,
            keep_profile=lambda timings: trainer.run and timings.save(trainer.run.profile_path),
        )

    def resume(self) -> None:
        """Go on where the newest whole checkpoint was written; from the start where there is none."""
        workers = self.workers
        agree = (lambda step: int(workers.everyones([step]).min())) if workers else None
        saved = self.checkpoints.restore(self.report.say, agree)
        self.progress = self.stepper.progress = Progress(**saved) if saved else Progress()
        run, progress = self.trainer.run, self.progress
        run.rewind(progress.epoch, progress.selections_logged)
        if saved is None:
            self.report.say(f"{run.path} has no checkpoint to go on from: starting from the beginning")
            return
        self.history = run.metrics()
        self.meter.joules = progress.joules
        self.trainer.watch.seconds.update(progress.seconds)
        self.tensors.restore(progress.tensors, run.selections())
        self.report.say(
            f"resumed after step {progress.step}, in epoch {progress.epoch + 1} of {self.trainer.epochs}"
        )

    def save(self) -> None:
        """Write a checkpoint, if there is a run folder.

        Raises:
            RunError: a weight is not finite (nothing is written then), or the checkpoint cannot be written.
        """
        if self.checkpoints is None:
            return
        for variable in self.trainer.model.trainable_weights:
            if not bool(tf.reduce_all(tf.math.is_finite(variable))):
                raise self._diverged(f"{name_of(variable)} is not finite")
        progress = self.progress
        with self.trainer.watch.lap(CHECKPOINT):
            progress.seconds = self.trainer.watch.so_far()
            self._note_training(self._training_since is not None)
            progress.tensors = self.tensors.state()
            self.checkpoints.save(progress.step, progress.to_json())
        self._saved_at = time.monotonic()

    def train_epoch(self) -> None:
        """Train on what is left of the epoch, evaluate, write its line, and save."""
        trainer, progress = self.trainer, self.progress
        self.report.epoch_begins(progress.epoch, trainer.epochs, self.data.steps_per_epoch, progress.batch)
        with trainer.watch.lap(LOOP):
            self._note_training(True)
            self._train_batches()
            self._note_training(False)
        with trainer.watch.lap(VALIDATION):
            test_loss, test_accuracy = self.evaluate(self.data.test(), self._between_tests)
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
            "ratio": self._ratio(median_ms),
            "train_seconds": trained_s - progress.trained_s,
            "train_seconds_total": trained_s,
            "flops": progress.flops - (self.history[-1]["flops_total"] or 0.0 if self.history else 0.0)
            or None,
            "flops_total": progress.flops or None,
            "learning_rate": optimizers.learning_rate_of(trainer.optimizer),
        }
        self.history.append(record)
        if trainer.run:
            trainer.run.add_metrics(record)
        self.report.epoch_ends(progress.epoch, trainer.epochs, progress.step, record)
        progress.epoch_done(trained_s)
        self.save()

    def _ratio(self, step_ms: float) -> Optional[float]:
        """`step_ms` over this run's full step; None where every step is one, and before the first."""
        whole = self.tensors.full_step_ms()
        makes_others = self.tensors.mask is None or not self.tensors.mask.all()
        return step_ms / whole if whole and (makes_others or self.trainer.selects) else None

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
        batches = iter(self.data.train(progress.epoch, progress.batch))
        while progress.batch < per_epoch:
            self._train_step(batches)
            self._between_steps()

    def _between_steps(self) -> None:
        """Stop or save, if it is time to; processes that train together do so after the same step."""
        stop, save = (
            self.interruption.asked,
            time.monotonic() - self._saved_at > 60 * self.trainer.checkpoint_minutes,
        )
        if self.workers:
            if self.progress.step % _STEPS_BETWEEN_AGREEMENTS:
                return
            stop, save = self.workers.everyones([stop, save]).any(axis=0)
        if stop:
            raise Interrupted
        if save:
            self.save()

    def _between_tests(self) -> None:
        if not self.workers:  # among others, this one stops with them
            self.interruption.check()

    def _train_step(self, batches: Iterator[Any]) -> None:
        """One step on the next of `batches`, and what is noted of it."""
        taken = self.stepper.take(lambda: next(batches))
        if not math.isfinite(taken.loss):
            raise self._diverged(f"the loss is {taken.loss}")
        self.report.step_done(taken.loss, self.accuracy, taken.ms, self._ratio)

    def _diverged(self, what: str) -> RunError:
        kept = self.checkpoints.saved() if self.checkpoints else []
        return RunError(
            f"{what} at step {self.progress.step} (epoch {self.progress.epoch + 1}): training diverged. "
            "Try a lower --learning-rate" + (f"; the last good checkpoint is {kept[0]}." if kept else ".")
        )

    def _log_selection(self, record: Dict[str, Any]) -> None:
        trainer, progress = self.trainer, self.progress
        if trainer.run:
            trainer.run.add_selection({"epoch": progress.epoch, **record})
            progress.selections_logged += 1
            if "selected" in record:
                self.report.selection_map(progress.step, np.array(self.tensors.masks))
