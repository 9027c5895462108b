"""The state of a run: what it is, its clock, its progress and its selector; and its figures."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence

import numpy as np
import tensorflow as tf

from elastictrainer.errors import DataError, RunError
from elastictrainer.selection.run_selector import Selector
from elastictrainer.steps import optimizers
from elastictrainer.steps.rates import RateSchedule
from elastictrainer.steps.timing import CACHE_READ, CACHE_WRITE
from elastictrainer.training import clock as laps
from elastictrainer.training.clock import Clock

Values = Dict[str, Any]  # by name: Keras' logs, a line of a file, figures of a run

_RECENT = 10_000  # step times that the run's median is of: enough for it, and a checkpoint stays small


def typical_ms(measured: Sequence[float]) -> float:
    """Return the mean of step times, each counted as three times the median at most.

    A median would leave out the rare long steps that are part of any training; one step during which the
    machine slept would spoil a mean.
    """
    return float(np.minimum(measured, 3 * np.median(measured)).mean())


@dataclass
class Progress:
    """The progress of a run between two steps. JSON values only.

    Attributes:
        epoch: epochs finished, their evaluation included.
        batch: minibatches done of the epoch going on.
        step: training steps done.
        loss_sum: of the epoch going on.
        epoch_ms: step times of the epoch going on; without the first step of each compiled graph, as below.
        recent_ms: the latest step times of the run, 10,000 at most.
        predicted_ratio: sum over the steps done of what the profile predicts, over a full step.
        flops: floating point operations of the steps done, as far as the profile counts them.
        timed_full_ms: times of full steps measured for comparison.
        cache_hits: steps done that read from it.
        cache_bytes: of the largest cache.
        stopped: why the run ends before its last epoch; None: it does not.
        patient_from: finished epochs when a run that had ended without better weights was given more time.
        start_loss: mean loss of the training images under the solved head, in nats; None: it was not solved.
        start_images: how many these are.
        cache_origin: how the interval's cache began, as JSON values; None: there is none.
        trained_s, epochs_flops: training seconds and `flops` up to the end of the latest finished epoch.
    """

    epoch: int = 0
    batch: int = 0
    step: int = 0
    loss_sum: float = 0.0
    epoch_ms: List[float] = field(default_factory=list)
    recent_ms: List[float] = field(default_factory=list)
    predicted_ratio: float = 0.0
    flops: float = 0.0
    timed_full_ms: List[float] = field(default_factory=list)
    cache_hits: int = 0
    cache_bytes: int = 0
    trained_s: float = 0.0
    epochs_flops: float = 0.0
    stopped: Optional[str] = None
    patient_from: int = 0
    start_loss: Optional[float] = None
    start_images: int = 0
    cache_origin: Optional[Values] = None

    def step_took(self, ms: float) -> None:
        """Add a step's time to the medians."""
        self.epoch_ms.append(ms)
        self.recent_ms.append(ms)
        if len(self.recent_ms) > 2 * _RECENT:
            del self.recent_ms[:_RECENT]

    def step_done(self, loss: float) -> None:
        """Count one more minibatch."""
        self.loss_sum += loss
        self.batch += 1
        self.step += 1

    def epoch_done(self, trained_s: float) -> None:
        """Count one more epoch, after `trained_s` seconds of training."""
        self.epoch += 1
        self.batch = 0
        self.loss_sum = 0.0
        self.epoch_ms = []
        self.trained_s = trained_s
        self.epochs_flops = self.flops

    def to_json(self) -> Values:
        """Return the argument of `restore`."""
        return {**asdict(self), "recent_ms": self.recent_ms[-_RECENT:]}

    def restore(self, values: Values) -> None:
        """Go on from what `to_json` gave; a checkpoint of another version may hold more, or less."""
        for name in values.keys() & vars(self).keys():
            setattr(self, name, values[name])


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
        evaluated: on how many images this epoch was evaluated, and how exact that is; empty: it was not.
        last_checkpoint: the checkpoint to resume from; None: none yet.
        data_fault: says which part of which minibatch holds a NaN or an infinity; empty: none is known to.
        selector: decides which tensors train; made on the first minibatch.
    """

    model: tf.keras.Model
    scheme: str
    rho: Optional[float] = None
    clock: Clock = field(default_factory=Clock)
    progress: Progress = field(default_factory=Progress)
    rates: Optional[RateSchedule] = None
    callbacks: List[Any] = field(default_factory=list)
    selections: List[Values] = field(default_factory=list)
    loss: float = float("nan")
    step_ms: float = float("nan")
    evaluated: Values = field(default_factory=dict)
    last_checkpoint: Optional[Path] = None
    data_fault: Callable[[], str] = str
    selector: Selector = field(init=False, repr=False)

    def set_rate(self) -> None:
        """Set the learning rate of the step to come."""
        if self.rates is not None:
            rate = self.rates.rate(self.clock.share(self.progress.step))
            optimizers.set_rate(self.model.optimizer, rate)

    def note_selection(self, record: Values) -> None:
        """Keep the record of a selection, and tell the callbacks."""
        record = {"epoch": self.progress.epoch, **record}
        self.selections.append(record)
        self.tell("on_selection", record)

    def tell(self, event: str, *about: Any) -> Values:
        """Call a method of TrainerCallback, by its name, of each callback; return the entries they gave."""
        entries: Values = {}
        for callback in self.callbacks:
            entries.update(getattr(callback, event)(*about) or {})
        return entries

    def diverged(self, what: str) -> RunError:
        """Return the error to raise where `what` shows that training has diverged."""
        kept = f"; the last good checkpoint is {self.last_checkpoint}" if self.last_checkpoint else ""
        where = f"{what} at step {self.progress.step} (epoch {self.progress.epoch + 1})"
        fault = self.data_fault()
        if fault:
            return DataError(f"{where}: {fault}. Correct these examples, or leave them out{kept}.")
        return RunError(
            f"{where}: training diverged. Lower the learning_rate (et-train: --learning-rate){kept}."
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
        trains_all = bool(self.progress.recent_ms) and self.selector.mask.all()
        return typical_ms(self.progress.recent_ms) if trains_all else None

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
        compiling = self.clock.watch.of(laps.FULL_TRACING) > 0  # the first run, a step, is in that
        return 1e-3 * full_ms * (self.progress.step - compiling) + self.clock.watch.of(*laps.SHARED)

    def compiling_s(self) -> float:
        """Return the seconds spent so far on making variables and compiling the full step."""
        return self.clock.watch.of(laps.BUILDING, laps.FULL_TRACING)

    def seconds_left(self) -> Optional[float]:
        """Return how long the run will go on, validation included, at its pace so far; None before a step."""
        if self.clock.by_clock:
            return self.clock.left_s()
        steps, spent_s = self.progress.step, self.clock.watch.total(laps.CALIBRATION)
        return spent_s / steps * (self.clock.epochs * self.clock.steps_per_epoch - steps) if steps else None


def summary_of(state: RunState) -> Values:
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
        "validation_seconds": watch.of(laps.VALIDATION),
        "calibration_seconds": watch.of(laps.CALIBRATION),
        "importance_seconds": watch.of(laps.IMPORTANCE, laps.TIMING),
        "selection_seconds": watch.of(laps.SELECTION),
        "trace_seconds": watch.of(laps.TRACING, laps.FULL_TRACING),
        "head_seconds": watch.of(laps.HEAD),
        "checkpoint_seconds": watch.of(laps.CHECKPOINT),
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
