"""The state of a run: what it is, its clock, its progress and its selector; and its figures."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Optional

import numpy as np
import tensorflow as tf

from elastictrainer.errors import RunError
from elastictrainer.selection.run_selector import Selector
from elastictrainer.steps.keras_compat.variables import tf_variables
from elastictrainer.steps.rates import RateSchedule
from elastictrainer.steps.timing import CACHE_READ, CACHE_WRITE
from elastictrainer.training import stopwatch
from elastictrainer.training.clock import Clock
from elastictrainer.training.planner import Now
from elastictrainer.training.progress import Progress, typical_ms
from elastictrainer.training.stopwatch import CALIBRATION, VALIDATION


@dataclass
class RunState:
    """The state of a run, for the loop that advances it and the callbacks that follow it.

    Attributes:
        model: compiled.
        scheme: its name.
        rho: requested; None where the scheme does not select, or a deadline ends a run with a cache.
        clock: its budget, and what is spent of it.
        progress: counters of the run.
        rates: the learning rate over the run; None: the optimizer has its own.
        callbacks: those of this run that keep state.
        selections: the record of each selection, as in selections.jsonl.
        loss, step_ms: of the latest step; its time includes fetching the minibatch.
        last_checkpoint: the checkpoint to resume from; None: none yet.
    """

    model: tf.keras.Model
    scheme: str
    rho: Optional[float] = None
    clock: Clock = field(default_factory=Clock)
    progress: Progress = field(default_factory=Progress)
    rates: Optional[RateSchedule] = None
    callbacks: List[Any] = field(default_factory=list)
    selections: List[Dict[str, Any]] = field(default_factory=list)
    loss: float = float("nan")
    step_ms: float = float("nan")
    last_checkpoint: Optional[Path] = None
    _selector: Optional[Selector] = field(default=None, init=False)

    @property
    def selector(self) -> Selector:
        """Return what decides which tensors train; made on the first minibatch."""
        assert self._selector is not None, "it is made on the first minibatch"
        return self._selector

    @selector.setter
    def selector(self, selector: Selector) -> None:
        self._selector = selector

    def now(self) -> Now:
        """Return what the planner has to know of the run as it stands."""
        clock, progress = self.clock, self.progress
        full_ms = self.full_step_ms()
        if full_ms is None and self.selector.profile is not None:
            full_ms = self.selector.profile.full_ms
        return Now(
            intervals=self.selector.interval,
            epoch=progress.epoch,
            step=progress.step,
            spent_s=clock.spent_s(),
            end_s=clock.end_s,
            ending_s=clock.ending_s,
            full_ms=None if full_ms is None else clock.slowdown * full_ms,
        )

    def note_selection(self, record: Dict[str, Any]) -> None:
        """Keep the record of a selection, and tell the callbacks."""
        record = {"epoch": self.progress.epoch, **record}
        self.selections.append(record)
        self.tell("on_selection", record)

    def tell(self, event: str, *about: Any) -> None:
        """Call a method of TrainerCallback, by its name, of each callback."""
        for callback in self.callbacks:
            getattr(callback, event)(*about)

    def evaluate(self, epoch: int) -> Dict[str, Any]:
        """Return what the callbacks say of the weights after `epoch` epochs; 0: of the solved head."""
        about: Dict[str, Any] = {}
        for callback in self.callbacks:
            about.update(callback.evaluate(epoch))
        return about

    def metric_variables(self) -> List[tf.Variable]:
        """Return all variables of the model's metrics."""
        return tf_variables(v for metric in self.model.metrics for v in metric.variables)

    def diverged(self, what: str) -> RunError:
        """Return the error to raise where `what` shows that training has diverged."""
        kept = f"; the last good checkpoint is {self.last_checkpoint}" if self.last_checkpoint else ""
        return RunError(
            f"{what} at step {self.progress.step} (epoch {self.progress.epoch + 1}): training diverged. "
            f"Try a lower learning rate (--learning-rate){kept}."
        )

    def epoch_step_ms(self) -> Optional[float]:
        """Return the median step time of the epoch going on; None before its first timed step."""
        epoch_ms = self.progress.epoch_ms
        return float(np.median(epoch_ms)) if epoch_ms else None

    def full_step_ms(self) -> Optional[float]:
        """Return the ms of a full step: by those measured for comparison, else by the run's own.

        None before the first of either.
        """
        if self.progress.timed_full_ms:
            return typical_ms(self.progress.timed_full_ms)
        trains_all = self._selector is not None and self._selector.mask.all()
        return typical_ms(self.progress.recent_ms) if trains_all and self.progress.recent_ms else None

    def ratio(self, step_ms: Optional[float]) -> Optional[float]:
        """Return `step_ms` over a full step of this run; None where none was timed for comparison."""
        full_ms = self.full_step_ms()
        return step_ms / full_ms if self.progress.timed_full_ms and full_ms and step_ms is not None else None

    def full_training_s(self) -> Optional[float]:
        """Return the seconds of full training in place of this run; None before the first full step.

        Of a run by the clock: for the epochs that were asked for. Of another: for the steps done. What it has
        in common with this run is added: waiting for the first minibatch of an epoch, the loop around the
        steps, checkpoints, and the compilation of its step.
        """
        full_ms = self.full_step_ms()
        if full_ms is None:
            return None
        if self.clock.by_clock:
            return 1e-3 * full_ms * self.clock.epochs * self.clock.steps_per_epoch + self.compiling_s()
        compiling = self.clock.watch.of(stopwatch.FULL_TRACING) > 0  # the first run, a step, is in that
        return 1e-3 * full_ms * (self.progress.step - compiling) + self.clock.watch.of(*stopwatch.SHARED)

    def compiling_s(self) -> float:
        """Return the seconds spent so far on making variables and compiling the full step."""
        return self.clock.watch.of(stopwatch.BUILDING, stopwatch.FULL_TRACING)

    def seconds_left(self) -> Optional[float]:
        """Return how long the run will go on, validation included, at its pace so far; None before a step."""
        if self.clock.by_clock:
            return self.clock.left_s()
        steps, spent_s = self.progress.step, self.clock.watch.total(CALIBRATION)
        return spent_s / steps * (self.clock.epochs * self.clock.steps_per_epoch - steps) if steps else None


def summary_of(state: RunState) -> Dict[str, Any]:
    """Return the run's figures so far, as in summary.json: docs/run-folder.md has every key with its
    unit.

    `seconds` holds all times by what they were spent on, and others add some of them up: importance's
    includes the full steps timed for comparison.
    `rho_achieved` is the training time over that of full training for the same steps. Training time runs
    from the beginning of each epoch to its last step, and while a checkpoint is written. Measurements
    for comparison, validation, and other callbacks after the last step are not in it.
    """
    progress, watch, selector = state.progress, state.clock.watch, state.selector
    steps, flops = progress.step, progress.flops or None
    full_s, train_s = state.full_training_s(), watch.training()
    predicted = 1.0 if state.scheme == "full" else None
    if selector.profile is not None and steps and not state.clock.by_clock:
        predicted = progress.predicted_ratio / steps
    return {
        "scheme": state.scheme,
        "rho_requested": state.rho,
        "rho_predicted": predicted,
        "rho_achieved": train_s / full_s if full_s else None,
        "train_seconds": train_s,
        "seconds": watch.so_far(),
        "full_training_seconds": full_s,
        "validation_seconds": watch.of(VALIDATION),
        "calibration_seconds": watch.of(CALIBRATION),
        "importance_seconds": watch.of(stopwatch.IMPORTANCE, stopwatch.TIMING),
        "selection_seconds": watch.of(stopwatch.SELECTION),
        "trace_seconds": watch.of(stopwatch.TRACING, stopwatch.FULL_TRACING),
        "head_seconds": watch.of(stopwatch.HEAD),
        "checkpoint_seconds": watch.of(stopwatch.CHECKPOINT),
        "cache_write_seconds": watch.of(CACHE_WRITE),
        "cache_read_seconds": watch.of(CACHE_READ),
        "cached_share": progress.cache_hits / steps if steps else 0.0,
        "cache_bytes": progress.cache_bytes,
        "epochs": progress.epoch,
        "stopped": progress.stopped,
        "steps": steps,
        "selections": len(selector.masks),
        "step_ms_median": float(np.median(progress.recent_ms)) if progress.recent_ms else None,
        "full_step_ms": state.full_step_ms(),
        "flops_per_step": flops / steps if flops else None,
        "flops_per_epoch": flops / progress.epoch if flops and progress.epoch else None,
        "flops_total": flops,
    }
