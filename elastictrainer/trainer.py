"""The one training loop, for every scheme."""

import gc
import math
import time
from typing import Any, Callable, Dict, List, Optional, Protocol, Union

import numpy as np
import tensorflow as tf

from elastictrainer import environment, optimizers, schemes
from elastictrainer.errors import RunError, UsageError
from elastictrainer.evaluation import Evaluator
from elastictrainer.importance import ImportanceEvaluator
from elastictrainer.objective import Objective, classification_loss
from elastictrainer.pace import Pace
from elastictrainer.profiler.timings import TensorTimings
from elastictrainer.reporting import Report
from elastictrainer.reselection import Reselector
from elastictrainer.run_folder import RunFolder
from elastictrainer.state import restored
from elastictrainer.steps import StepCache, TrainStep
from elastictrainer.stopwatch import Stopwatch

_PROBE_EPOCH = 1_000_000  # the order of probe minibatches is drawn as if for epochs that no training reaches
_FULL_STEPS_MEASURED = 12
NOT_TRAINING = ("validation", "calibration")


class Data(Protocol):
    """What the trainer needs of a data set; `datasets.ImageData` is one."""

    steps_per_epoch: int

    def train(self, epoch: int) -> Any:
        """An iterable of minibatches (inputs, labels), the same for the same epoch."""

    def test(self) -> Any:
        """An iterable of minibatches of the test data."""


class Trainer:
    """Trains a Keras classifier by one of the schemes.

    >>> trainer = Trainer(model, timings=TensorTimings.load("profile.json"), rho=0.5)   # doctest: +SKIP
    >>> trainer.fit(data)["accuracy_best"]                                              # doctest: +SKIP
    """

    def __init__(
        self,
        model: tf.keras.Model,
        optimizer: Any = None,
        *,
        loss: Optional[Callable] = None,
        scheme: Union[str, schemes.Scheme] = "elastic",
        timings: Optional[TensorTimings] = None,
        rho: float = 0.5,
        interval: int = 4,
        epochs: int = 12,
        importance_batches: int = 8,
        solver: str = "dp",
        feedback: bool = True,
        seed: int = 0,
        run: Optional[RunFolder] = None,
        quiet: bool = False,
    ):
        """
        Args:
            model: N trainable tensors; from a minibatch's inputs to logits.
            optimizer: None: the paper's SGD, at a constant learning rate.
            loss: takes labels and outputs, returns a scalar; None: cross-entropy of integer labels and logits.
            scheme: a name of `schemes.SCHEMES`, or an object like them.
            timings: the model's profile; needed by schemes that select, for others only a prediction.
            rho: requested training time over full training's (schemes that select).
            interval: epochs between two selections; the very first one is renewed after half an interval.
            epochs: passes over the training data.
            importance_batches: probe minibatches of a selection.
            solver: "dp" or "milp", see `select`.
            feedback: correct the selector's budget by the times measured in this run.
            seed: written to the summary; the data and the caller own the random numbers.
            run: where to write; None: nothing is written.
            quiet: print nothing.

        Raises:
            UsageError: an argument out of range, no profile for a scheme that needs one, a profile of another model.
        """
        for name, value in {"interval": interval, "epochs": epochs, "importance_batches": importance_batches}.items():
            if value < 1:
                raise UsageError(f"{name} must be at least 1, not {value}.")
        self.model = model
        self.scheme = schemes.create(scheme) if isinstance(scheme, str) else scheme
        self.scheme_name = scheme if isinstance(scheme, str) else type(scheme).__name__
        self.selects = self.scheme.importance_metric is not None
        if not model.trainable_weights:
            raise UsageError("the model has no trainable tensor. Set `trainable = True` on a layer.")
        if self.selects and timings is None:
            raise UsageError("an elastic scheme needs the model's profile: pass timings, from profile_model or et-profile.")
        if timings is not None and len(timings) != len(model.trainable_weights):
            raise UsageError(
                f"the profile has {len(timings)} tensors, the model {len(model.trainable_weights)}: profile this model."
            )
        if self.selects and not timings.rho_min <= rho <= 1:
            raise UsageError(f"rho {rho:g} cannot be had on this device. Valid: {timings.rho_min:.3f} to 1.")
        self.optimizer = optimizers.make("sgd") if optimizer is None else optimizer
        self.loss = loss or classification_loss()
        self.timings = timings
        self.rho = rho
        self.interval = interval
        self.epochs = epochs
        self.importance_batches = importance_batches
        self.solver = solver
        self.feedback = feedback
        self.seed = seed
        self.run = run
        self.quiet = quiet
        self.watch = Stopwatch()

    def fit(self, data: Data) -> Dict[str, Any]:
        """Train, evaluate after every epoch, and return the summary (the content of summary.json).

        Raises:
            RunError: the loss is not finite, or the data cannot be read.
        """
        optimizers.build(self.optimizer, self.model.trainable_weights)
        objective = Objective(self.model, self.loss, self.scheme.penalty(self.model))
        accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")
        steps = StepCache(objective, self.optimizer, [accuracy])
        evaluate = Evaluator(objective)
        report = Report(self.run, self.quiet)
        manager = self._checkpoints()
        allowed = self.scheme.mask(self.model)
        everything = np.ones(len(self.model.trainable_weights), bool)
        pace = reselect = None
        mask: Optional[np.ndarray] = None if self.selects else allowed
        if self.selects:
            pace = Pace(self.rho, self.timings, self.epochs, data.steps_per_epoch, self.interval)
            reselect = Reselector(
                ImportanceEvaluator(objective, self.optimizer, self.scheme.importance_metric),
                self.timings, pace, self.watch, self.importance_batches, self.solver, self.feedback,
            )  # fmt: skip
        self._full_ms: List[float] = []
        if not self.selects and not allowed.all():
            self._measure_full_step(data, 0)

        step = 0
        all_ms: List[float] = []
        predicted_ms = 0.0
        masks: List[np.ndarray] = []
        history: List[Dict[str, Any]] = []
        try:
            for epoch in range(self.epochs):
                report.epoch_begins(epoch, self.epochs, data.steps_per_epoch)
                accuracy.reset_state()
                losses: List[float] = []
                epoch_ms: List[float] = []
                trained_before = self.watch.total(*NOT_TRAINING)
                with self.watch.lap("steps"):
                    if not self.selects and epoch and epoch % self.interval == 0:
                        figures = self.scheme.at_interval(self.model, self.optimizer)
                        if figures and self.run:
                            self.run.add_selection({"epoch": epoch, "step": step, **figures})
                    batches = iter(data.train(epoch))
                    for _ in range(data.steps_per_epoch):
                        start = time.perf_counter()
                        if self.selects and pace.selection_due(step):
                            probe = iter(data.train(_PROBE_EPOCH + step))
                            mask, record = reselect(step, probe, mask)
                            masks.append(mask)
                            self._log_selection(report, {"epoch": epoch, **record}, masks)
                            start = time.perf_counter()
                        full_now = self.selects and (mask is None or pace.full_step_due(step))
                        now = everything if full_now else mask
                        x, y = next(batches)
                        new = not steps.has(now)
                        if new:
                            with self.watch.lap("tracing"):  # the first step with it, included
                                loss = float(steps.get(now)(x, y))
                        else:
                            loss = float(steps.get(now)(x, y))
                        if not math.isfinite(loss):
                            raise RunError(
                                f"the loss is {loss} at step {step} (epoch {epoch + 1}): training diverged. "
                                "Try a lower --learning-rate."
                            )
                        ms = 1e3 * (time.perf_counter() - start)
                        losses.append(loss)
                        if not new:
                            epoch_ms.append(ms)
                            if self.selects:
                                pace.record(ms, full_now)
                        if self.timings is not None:
                            predicted_ms += self.timings.step_time(now)
                        step += 1
                        report.step_done(loss, accuracy, ms, self._ratio(ms, pace))
                all_ms += epoch_ms
                with self.watch.lap("validation"):
                    test_loss, test_accuracy = evaluate(data.test())
                if manager is not None:
                    with self.watch.lap("checkpoint"):
                        manager.save(checkpoint_number=epoch + 1)
                median = float(np.median(epoch_ms)) if epoch_ms else 0.0
                record = {
                    "epoch": epoch + 1,
                    "step": step,
                    "train_loss": float(np.mean(losses)),
                    "train_accuracy": float(accuracy.result()),
                    "test_loss": test_loss,
                    "test_accuracy": test_accuracy,
                    "step_ms_median": median,
                    "ratio": self._ratio(median, pace),
                    "train_seconds": self.watch.total(*NOT_TRAINING) - trained_before,
                    "train_seconds_total": self.watch.total(*NOT_TRAINING),
                    "learning_rate": self._learning_rate(),
                }
                history.append(record)
                if self.run:
                    self.run.add_metrics(record)
                report.epoch_ends(epoch, self.epochs, step, record)
                gc.collect()
        finally:
            report.close()
        if not self.selects and not allowed.all():
            self._measure_full_step(data, 1)
        summary = self._summary(history, all_ms, step, predicted_ms, len(masks), pace)
        if self.run:
            self.run.save_model(self.model)
            self.run.write_summary(summary)
        return summary

    def _log_selection(self, report: Report, record: Dict[str, Any], masks: List[np.ndarray]) -> None:
        if self.run:
            self.run.add_selection(record)
        report.say(
            f"selected {len(record['selected'])} of {len(self.timings)} tensors, predicted "
            f"{record['predicted_ratio']:.3f} of a full step, with "
            f"{100 * record['importance_selected'] / max(record['importance_positive'], 1e-30):.0f} % of the importance"
        )
        report.selection_map(record["step"], np.array(masks))

    def _measure_full_step(self, data: Data, number: int) -> None:
        """Time full steps on real minibatches for a scheme that never makes one, and leave no trace of them."""
        with self.watch.lap("calibration"):
            step = TrainStep(Objective(self.model, self.loss), self.optimizer, self.model.trainable_weights)
            batches = iter(data.train(_PROBE_EPOCH + number))
            first = next(batches)
            step.trace(*first)
            with restored([*step.state(), *optimizers.variables_of(self.optimizer)]):
                for k in range(min(_FULL_STEPS_MEASURED + 2, data.steps_per_epoch)):
                    start = time.perf_counter()
                    batch = first if k == 0 else next(batches)
                    float(step(*batch))
                    if k >= 2:
                        self._full_ms.append(1e3 * (time.perf_counter() - start))

    def _full_step_ms(self, all_ms: List[float], pace: Optional[Pace]) -> Optional[float]:
        """The full step as measured in this run: among the steps themselves, or set apart."""
        if pace is not None:
            return pace.full_step_ms()
        measured = self._full_ms or all_ms
        return float(np.median(measured)) if measured else None

    def _ratio(self, step_ms: float, pace: Optional[Pace]) -> Optional[float]:
        whole = self._full_step_ms([], pace)
        return step_ms / whole if whole else None

    def _learning_rate(self) -> float:
        rate = self.optimizer.learning_rate
        if callable(rate) and not isinstance(rate, tf.Variable):
            rate = rate(self.optimizer.iterations)
        return float(rate)

    def _checkpoints(self) -> Optional[tf.train.CheckpointManager]:
        if self.run is None:
            return None
        checkpoint = tf.train.Checkpoint(model=self.model, optimizer=self.optimizer)
        return tf.train.CheckpointManager(checkpoint, str(self.run.checkpoints_path), max_to_keep=2)

    def _summary(
        self,
        history: List[Dict[str, Any]],
        all_ms: List[float],
        steps: int,
        predicted_ms: float,
        selections: int,
        pace: Optional[Pace],
    ) -> Dict[str, Any]:
        train_seconds = self.watch.total(*NOT_TRAINING)
        full_ms = self._full_step_ms(all_ms, pace)
        accuracies = [record["test_accuracy"] for record in history]
        predicted = 1.0 if self.scheme_name == "full" else None
        if self.timings is not None:
            predicted = predicted_ms / steps / self.timings.full_ms
        return {
            "scheme": self.scheme_name,
            "rho_requested": self.rho if self.selects else None,
            "rho_predicted": predicted,
            "rho_achieved": 1e3 * train_seconds / steps / full_ms if full_ms else None,
            "accuracy_best": max(accuracies),
            "accuracy_last": accuracies[-1],
            "loss_last": history[-1]["test_loss"],
            "train_seconds": train_seconds,
            "validation_seconds": self.watch.seconds["validation"],
            "calibration_seconds": self.watch.seconds["calibration"],
            "importance_seconds": self.watch.seconds["importance"],
            "selection_seconds": self.watch.seconds["selection"],
            "trace_seconds": self.watch.seconds["tracing"],
            "checkpoint_seconds": self.watch.seconds["checkpoint"],
            "epochs": len(history),
            "steps": steps,
            "selections": selections,
            "step_ms_median": float(np.median(all_ms)) if all_ms else None,
            "full_step_ms": full_ms,
            "peak_rss_bytes": environment.peak_rss_bytes(),
            "seed": self.seed,
        }
