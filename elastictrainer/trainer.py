"""Train a model by a scheme, evaluate it after every epoch, and account for the time."""

import time
from typing import Any, Callable, Dict, Optional, Union

import numpy as np
import tensorflow as tf

from elastictrainer import environment, optimizers, schemes
from elastictrainer.errors import UsageError
from elastictrainer.objective import Objective, classification_loss
from elastictrainer.profiler.timings import TensorTimings
from elastictrainer.run_folder import RunFolder
from elastictrainer.session import PROBE_EPOCH, Data, Session
from elastictrainer.state import restored
from elastictrainer.steps import TrainStep
from elastictrainer.stopwatch import Stopwatch

_FULL_STEPS_MEASURED = 12
NOT_TRAINING = ("validation", "calibration")


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
        session = Session(self, data)
        if not self.selects and not session.mask.all():
            self._measure_full_step(session, data, 0)
        try:
            for epoch in range(self.epochs):
                session.report.epoch_begins(epoch, self.epochs, data.steps_per_epoch)
                trained_before = self.watch.total(*NOT_TRAINING)
                with self.watch.lap("steps"):
                    figures = session.train_epoch(epoch, data)
                with self.watch.lap("validation"):
                    test_loss, test_accuracy = session.evaluate(data.test())
                if session.manager is not None:
                    with self.watch.lap("checkpoint"):
                        session.manager.save(checkpoint_number=epoch + 1)
                trained = self.watch.total(*NOT_TRAINING)
                record = {
                    "epoch": epoch + 1,
                    "step": session.step,
                    **figures,
                    "test_loss": test_loss,
                    "test_accuracy": test_accuracy,
                    "ratio": session.ratio_to_full_step(figures["step_ms_median"]),
                    "train_seconds": trained - trained_before,
                    "train_seconds_total": trained,
                    "learning_rate": self._learning_rate(),
                }
                session.history.append(record)
                if self.run:
                    self.run.add_metrics(record)
                session.report.epoch_ends(epoch, self.epochs, session.step, record)
        finally:
            session.report.close()
        if not self.selects and not session.mask.all():
            self._measure_full_step(session, data, 1)
        summary = self._summary(session)
        if self.run:
            self.run.save_model(self.model)
            self.run.write_summary(summary)
        return summary

    def _measure_full_step(self, session: Session, data: Data, number: int) -> None:
        """Time full steps on real minibatches for a scheme that never makes one, and leave no trace of them."""
        with self.watch.lap("calibration"):
            step = TrainStep(Objective(self.model, self.loss), self.optimizer, self.model.trainable_weights)
            batches = iter(data.train(PROBE_EPOCH + number))
            first = next(batches)
            step.trace(*first)
            with restored([*step.state(), *optimizers.variables_of(self.optimizer)]):
                for k in range(min(_FULL_STEPS_MEASURED + 2, data.steps_per_epoch)):
                    start = time.perf_counter()
                    batch = first if k == 0 else next(batches)
                    float(step(*batch))
                    if k >= 2:
                        session.apart_ms.append(1e3 * (time.perf_counter() - start))

    def _learning_rate(self) -> float:
        rate = self.optimizer.learning_rate
        if callable(rate) and not isinstance(rate, tf.Variable):
            rate = rate(self.optimizer.iterations)
        return float(rate)

    def _summary(self, session: Session) -> Dict[str, Any]:
        train_seconds = self.watch.total(*NOT_TRAINING)
        full_ms = session.full_step_ms()
        accuracies = [record["test_accuracy"] for record in session.history]
        predicted = 1.0 if self.scheme_name == "full" else None
        if self.timings is not None:
            predicted = session.predicted_ms / session.step / self.timings.full_ms
        return {
            "scheme": self.scheme_name,
            "rho_requested": self.rho if self.selects else None,
            "rho_predicted": predicted,
            "rho_achieved": 1e3 * train_seconds / session.step / full_ms if full_ms else None,
            "accuracy_best": max(accuracies),
            "accuracy_last": accuracies[-1],
            "loss_last": session.history[-1]["test_loss"],
            "train_seconds": train_seconds,
            "validation_seconds": self.watch.seconds["validation"],
            "calibration_seconds": self.watch.seconds["calibration"],
            "importance_seconds": self.watch.seconds["importance"],
            "selection_seconds": self.watch.seconds["selection"],
            "trace_seconds": self.watch.seconds["tracing"],
            "checkpoint_seconds": self.watch.seconds["checkpoint"],
            "epochs": len(session.history),
            "steps": session.step,
            "selections": len(session.masks),
            "step_ms_median": float(np.median(session.all_ms)) if session.all_ms else None,
            "full_step_ms": full_ms,
            "peak_rss_bytes": environment.peak_rss_bytes(),
            "seed": self.seed,
        }
