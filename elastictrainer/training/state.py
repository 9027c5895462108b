"""The state of a run: what outlives one call of Keras' `fit`, and what its times add up to."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import numpy as np
import tensorflow as tf

from elastictrainer.errors import RunError
from elastictrainer.selection import clock
from elastictrainer.selection.policy import RECORDING, REPLAY, Policy
from elastictrainer.steps.keras_compat import tf_variables
from elastictrainer.training.progress import Progress
from elastictrainer.training.stopwatch import CALIBRATION, VALIDATION, Stopwatch
from elastictrainer.training.workers import Workers


@dataclass
class RunState:
    """Where a run stands, for the loop that moves it on and the callbacks that follow it.

    Attributes:
        model: compiled.
        scheme: its name.
        rho: requested; None where the scheme does not select.
        epochs: of the whole run.
        steps_per_epoch: minibatches in an epoch.
        say: takes a line for the user.
        workers: the processes that train together; None: this one is alone.
        policy: decides which tensors train; None before the first minibatch.
        progress: how far the run is.
        watch: where its time went.
        callbacks: those of this run that keep state.
        selections: the record of each selection, as in selections.jsonl.
        stopped: a callback has ended training; what is left is the end of its epoch.
        recording: where the interval's recording began, as JSON values; None: nothing is recorded.
        scored_on: epoch and number of the minibatches that tensors are scored on, where no probe gives them.
        loss, step_ms: of the latest step; its time includes fetching the minibatch.
        last_checkpoint: where the run can go on from; None: nowhere.
    """

    model: tf.keras.Model
    scheme: str
    rho: Optional[float]
    epochs: int
    say: Callable[[str], None]
    workers: Optional[Workers] = None
    steps_per_epoch: int = 0
    policy: Optional[Policy] = None
    progress: Progress = field(default_factory=Progress)
    watch: Stopwatch = field(default_factory=Stopwatch)
    callbacks: List[Any] = field(default_factory=list)
    selections: List[Dict[str, Any]] = field(default_factory=list)
    stopped: bool = False
    recording: Optional[Dict[str, Any]] = None
    scored_on: List[List[int]] = field(default_factory=list)
    loss: float = float("nan")
    step_ms: float = float("nan")
    last_checkpoint: Optional[Path] = None

    def epoch_done(self) -> None:
        """The epoch going on is evaluated and recorded."""
        self.progress.epoch_done(self.watch.training())

    def metric_variables(self) -> List[tf.Variable]:
        """All that the model's metrics are made of."""
        return tf_variables(v for metric in self.model.metrics for v in metric.variables)

    def diverged(self, what: str) -> RunError:
        """The error to raise where `what` shows that training has diverged."""
        kept = f"; the last good checkpoint is {self.last_checkpoint}" if self.last_checkpoint else ""
        return RunError(
            f"{what} at step {self.progress.step} (epoch {self.progress.epoch + 1}): training diverged. "
            f"Try a lower learning rate (--learning-rate){kept}."
        )

    def epoch_step_ms(self) -> Optional[float]:
        """The median step time of the epoch going on; None before its first timed step."""
        epoch_ms = self.progress.epoch_ms
        return float(np.median(epoch_ms)) if epoch_ms else None

    def ratio(self, step_ms: Optional[float]) -> Optional[float]:
        """`step_ms` over a full step of this run; None before the first one, and where all steps are full."""
        if self.policy is None or step_ms is None:
            return None
        full_ms, mask = self.policy.full_step_ms(), self.policy.mask
        always_full = self.rho is None and mask is not None and mask.all()
        return step_ms / full_ms if full_ms and not always_full else None

    def full_training_s(self) -> Optional[float]:
        """What full training would have taken for the steps done; None before the first full step.

        Its steps, by those that were made, and what it has in common with this run: waiting for the first
        minibatch of an epoch, the loop around the steps, checkpoints, and the compilation of its step.
        """
        if self.policy is None:
            return None
        compiling = self.watch.of(clock.FULL_TRACING) > 0  # the first run, a step, is in that
        steps_ms = self.policy.full_training_ms(self.progress.step - compiling)
        return None if steps_ms is None else 1e-3 * steps_ms + self.watch.of(*clock.SHARED)

    def seconds_left(self) -> Optional[float]:
        """How long the run will go on, validation included, at the pace it has had; None before a step."""
        steps, spent_s = self.progress.step, self.watch.total(CALIBRATION)
        return spent_s / steps * (self.epochs * self.steps_per_epoch - steps) if steps else None

    def figures(self) -> Dict[str, Any]:
        """The run's figures so far, as in summary.json: docs/run-folder.md has every key with its unit.

        `seconds` holds all times by what they were spent on, and others add some of them up: importance's
        includes the full steps timed beside the run.
        `rho_achieved` is the training time over that of full training for the same steps. Training time runs
        from the beginning of each epoch to its last step, and while a checkpoint is written. What is measured
        beside the run, validation, and what other callbacks do after the last step are not in it.
        """
        progress, watch, policy = self.progress, self.watch, self.policy
        steps, flops = progress.step, progress.flops or None
        full_s, train_s = self.full_training_s(), watch.training()
        full_ms = policy.full_training_ms(steps) if policy is not None else None
        predicted = 1.0 if self.scheme == "full" else None
        if policy is not None and policy.timings is not None and steps:
            predicted = progress.predicted_ratio / steps
        return {
            "scheme": self.scheme,
            "rho_requested": self.rho,
            "rho_predicted": predicted,
            "rho_achieved": train_s / full_s if full_s else None,
            "train_seconds": train_s,
            "seconds": watch.so_far(),
            "full_training_seconds": full_s,
            "validation_seconds": watch.of(VALIDATION),
            "calibration_seconds": watch.of(CALIBRATION),
            "importance_seconds": watch.of(clock.IMPORTANCE, clock.TIMING),
            "selection_seconds": watch.of(clock.SELECTION),
            "trace_seconds": watch.of(clock.TRACING, clock.FULL_TRACING),
            "profiling_seconds": watch.of(clock.PROFILING),
            "checkpoint_seconds": watch.of(clock.CHECKPOINT),
            "recording_seconds": watch.of(RECORDING),
            "replay_seconds": watch.of(REPLAY),
            "replayed_share": progress.replayed / steps if steps else 0.0,
            "recorded_bytes": progress.recorded_bytes,
            "epochs": progress.epoch,
            "stopped": progress.stopped,
            "steps": steps,
            "selections": policy.selections if policy is not None else 0,
            "corrections": policy.corrections if policy is not None else 0,
            "step_ms_median": float(np.median(progress.recent_ms)) if progress.recent_ms else None,
            "full_step_ms": full_ms / steps if full_ms and steps else None,
            "flops_per_step": flops / steps if flops else None,
            "flops_per_epoch": flops / progress.epoch if flops and progress.epoch else None,
            "flops_total": flops,
        }
