"""Train a model by a scheme, evaluate it after every epoch, and account for the time."""

import contextlib
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional, Union

import numpy as np
import tensorflow as tf

from elastictrainer.errors import Interrupted, UsageError
from elastictrainer.profiler.timings import TensorTimings
from elastictrainer.runs import environment
from elastictrainer.runs.run_folder import RunFolder
from elastictrainer.selection import schemes
from elastictrainer.selection.settings import SelectionSettings, check_tensors
from elastictrainer.steps import optimizers
from elastictrainer.steps.compiled_step import CompiledStep
from elastictrainer.steps.objective import Objective, classification_loss
from elastictrainer.steps.snapshot import restored
from elastictrainer.training import stopwatch
from elastictrainer.training.energy import Sensor
from elastictrainer.training.session import PROBE_EPOCH, Data, Session

if TYPE_CHECKING:
    from elastictrainer.training.workers import Workers

_FULL_STEPS_MEASURED = 12


class Training:
    """Trains a Keras classifier by one of the schemes.

    >>> training = Training(model, timings=TensorTimings.load("profile.json"), rho=0.5)   # doctest: +SKIP
    >>> training.fit(data)["accuracy_best"]                                              # doctest: +SKIP
    """

    def __init__(
        self,
        model: tf.keras.Model,
        optimizer: Any = None,
        *,
        loss: Optional[Callable] = None,
        scheme: Union[str, schemes.Scheme] = "elastic",
        timings: Optional[TensorTimings] = None,
        epochs: int = 12,
        seed: int = 0,
        checkpoint_minutes: float = 10.0,
        sensor: Optional[Sensor] = None,
        run: Optional[RunFolder] = None,
        quiet: bool = False,
        workers: Optional["Workers"] = None,
        **selection: Any,
    ):
        """
        Args:
            model: N trainable tensors; from a minibatch's inputs to logits.
            optimizer: None: the paper's SGD, at a constant learning rate.
            loss: takes labels and outputs, returns a scalar; None: cross-entropy of integer labels and logits.
            scheme: a name of `schemes.SCHEMES`, or an object like them.
            timings: the model's profile; needed by schemes that select, for others only a prediction.
            epochs: passes over the training data.
            seed: written to the summary; the data and the caller own the random numbers.
            checkpoint_minutes: between two checkpoints within an epoch; one follows every epoch anyhow.
            sensor: of this device's energy, see `energy.find_sensor`; None: energy is not measured.
            run: where to write; None: nothing is written.
            quiet: print nothing.
            workers: the processes that train together; `data` is then this one's share, and measured times must not steer the
                selection (feedback=False), which all have to make alike.
            selection: rho, interval and the other attributes of SelectionSettings.

        Raises:
            UsageError: an argument out of range, no profile for a scheme that needs one, a profile of another model.
        """
        self.selection = SelectionSettings(**selection)
        if workers is not None and self.selection.feedback:
            raise UsageError("processes that train together must select alike: pass feedback=False.")
        if epochs < 1:
            raise UsageError(f"epochs must be at least 1, not {epochs}.")
        self.model = model
        self.scheme = schemes.create(scheme) if isinstance(scheme, str) else scheme
        self.scheme_name = scheme if isinstance(scheme, str) else type(scheme).__name__
        self.selects = self.scheme.importance_metric is not None
        if not model.trainable_weights:
            raise UsageError("the model has no trainable tensor. Set `trainable = True` on a layer.")
        if self.selects:
            self.selection.check_profile(timings, len(model.trainable_weights))
        elif timings is not None:
            check_tensors(timings, len(model.trainable_weights))
        self.optimizer = optimizers.make("sgd") if optimizer is None else optimizer
        self.loss = loss or classification_loss()
        self.timings = timings
        self.epochs = epochs
        self.seed = seed
        self.checkpoint_minutes = checkpoint_minutes
        self.sensor = sensor
        self.run = run
        self.quiet = quiet
        self.workers = workers
        self.watch = stopwatch.Stopwatch()

    def fit(self, data: Data, resume: bool = False) -> Dict[str, Any]:
        """Train, evaluate after every epoch, and return the summary (the content of summary.json).

        With a run folder, a checkpoint is written after every epoch and every `checkpoint_minutes`; SIGINT and SIGTERM
        finish the step, write one more, and raise Interrupted.

        Args:
            data: the minibatches.
            resume: go on from the run folder's newest whole checkpoint. Model, data and settings must be the same.

        Raises:
            RunError: training diverged, the data cannot be read, a checkpoint cannot be written or none can be read.
            Interrupted: see above; a KeyboardInterrupt.
            UsageError: nothing to resume without a run folder.
        """
        if resume and self.run is None:
            raise UsageError("resume needs a run folder: Training(..., run=RunFolder(path)).")
        session = Session(self, data)
        with session.interruption if self.run else contextlib.nullcontext():
            try:
                if resume:
                    session.resume()
                apart = not self.selects and not session.tensors.mask.all()
                if apart and not session.tensors.full_apart_ms:
                    self._measure_full_step(session, data, 0)
                with session.meter:
                    while session.progress.epoch < self.epochs:
                        session.train_epoch()
            except Interrupted:
                session.save()
                raise Interrupted(
                    f"Saved after step {session.progress.step}. Go on with: et-train --resume {self.run.path}"
                ) from None
            finally:
                session.tensors.close()
                session.report.close()
            # A signal that comes this late is held back until the result is written.
            if apart:
                self._measure_full_step(session, data, 1)
            summary = self._summary(session)
            if self.run:
                self.run.save_model(self.model)
                self.run.write_summary(summary)
        return summary

    def _measure_full_step(self, session: Session, data: Data, number: int) -> None:
        """Time full steps on real minibatches for a scheme that never makes one, and leave no trace of them."""
        with self.watch.lap(stopwatch.CALIBRATION):
            step = CompiledStep(
                Objective(self.model, self.loss), self.optimizer, self.model.trainable_weights
            )
            batches = iter(data.train(PROBE_EPOCH + number))
            first = next(batches)
            step.trace(*first)
            with restored([*step.state(), *optimizers.variables_of(self.optimizer)]):
                for k in range(min(_FULL_STEPS_MEASURED + 2, data.steps_per_epoch)):
                    start = time.perf_counter()
                    batch = first if k == 0 else next(batches)
                    float(step(*batch))
                    if k >= 2:
                        session.tensors.full_apart_ms.append(1e3 * (time.perf_counter() - start))

    def _summary(self, session: Session) -> Dict[str, Any]:
        train_seconds = self.watch.training()
        progress = session.progress
        full_steps_ms = session.tensors.full_training_ms(progress.step)
        full_training_s = session.stepper.full_training_s()
        accuracies = [record["test_accuracy"] for record in session.history]
        predicted = 1.0 if self.scheme_name == "full" else None
        flops = progress.flops or None
        if self.timings is not None:
            predicted = progress.predicted_ratio / progress.step
        return {
            "scheme": self.scheme_name,
            "rho_requested": self.selection.rho if self.selects else None,
            "rho_predicted": predicted,
            "rho_achieved": train_seconds / full_training_s if full_training_s else None,
            "accuracy_best": max(accuracies),
            "accuracy_last": accuracies[-1],
            "loss_last": session.history[-1]["test_loss"],
            "train_seconds": train_seconds,
            "full_training_seconds": full_training_s,
            "validation_seconds": self.watch.seconds[stopwatch.VALIDATION],
            "calibration_seconds": self.watch.seconds[stopwatch.CALIBRATION],
            "importance_seconds": self.watch.seconds[stopwatch.IMPORTANCE],
            "selection_seconds": self.watch.seconds[stopwatch.SELECTION],
            "trace_seconds": self.watch.of(stopwatch.TRACING, stopwatch.FULL_TRACING),
            "profiling_seconds": self.watch.seconds[stopwatch.PROFILING],
            "checkpoint_seconds": self.watch.seconds[stopwatch.CHECKPOINT],
            "epochs": len(session.history),
            "steps": progress.step,
            "selections": len(session.tensors.masks) - session.tensors.corrections,
            "corrections": session.tensors.corrections,
            "step_ms_median": float(np.median(progress.recent_ms)) if progress.recent_ms else None,
            "full_step_ms": full_steps_ms and full_steps_ms / progress.step,
            "flops_per_step": flops and flops / progress.step,
            "flops_per_epoch": flops and flops / len(session.history),
            "flops_total": flops,
            "energy_joules": progress.joules if self.sensor is not None else None,
            "energy_source": self.sensor.name if self.sensor is not None else None,
            "training_intervals": progress.intervals,
            "peak_rss_bytes": environment.peak_rss_bytes(),
            "peak_gpu_bytes": environment.peak_gpu_bytes(),
            "seed": self.seed,
        }
