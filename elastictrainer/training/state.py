"""The state of a run: what outlives one call of Keras' `fit`, and sums of its times."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Optional

import numpy as np
import tensorflow as tf

from elastictrainer.errors import RunError
from elastictrainer.selection.budget import Budget
from elastictrainer.selection.policy import Policy
from elastictrainer.steps.keras_compat.variables import tf_variables
from elastictrainer.steps.rates import RateSchedule
from elastictrainer.training import stopwatch
from elastictrainer.training.deadline import Deadline
from elastictrainer.training.progress import Progress, typical_ms
from elastictrainer.training.stopwatch import CALIBRATION, Stopwatch

_MOST_OF_BUDGET = 0.5  # that is left, for a pass over the images: the rest is for training on its result


@dataclass
class RunState:
    """The state of a run, for the loop that advances it and the callbacks that follow it.

    Attributes:
        model: compiled.
        scheme: its name.
        rho: requested; None where the scheme does not select, or a deadline ends a run with a cache.
        epochs: of the whole run; of a run by the clock, those of the full training whose time rho refers to.
        steps_per_epoch: minibatches in an epoch.
        rates: the learning rate over the run; None: the optimizer has its own.
        budget: of the run.
        deadline: the time that the whole process may take; None: the run has a budget of training time.
        progress: counters of the run.
        watch: its time by lap.
        callbacks: those of this run that keep state.
        selections: the record of each selection, as in selections.jsonl.
        head_alone: the head is solved, and no step follows.
        cache_origin: how the interval's cache began, as JSON values; None: there is none.
        start_loss: mean loss of the training images under the solved head, in nats; None: it was not solved.
        loss, step_ms: of the latest step; its time includes fetching the minibatch.
        last_checkpoint: the checkpoint to resume from; None: none yet.
    """

    model: tf.keras.Model
    scheme: str
    rho: Optional[float]
    epochs: int
    steps_per_epoch: int = 0
    rates: Optional[RateSchedule] = None
    budget: Budget = field(default_factory=Budget)
    deadline: Optional[Deadline] = None
    progress: Progress = field(default_factory=Progress)
    watch: Stopwatch = field(default_factory=Stopwatch)
    callbacks: List[Any] = field(default_factory=list)
    selections: List[Dict[str, Any]] = field(default_factory=list)
    head_alone: bool = False
    cache_origin: Optional[Dict[str, Any]] = None
    start_loss: Optional[float] = None
    loss: float = float("nan")
    step_ms: float = float("nan")
    last_checkpoint: Optional[Path] = None
    _policy: Optional[Policy] = field(default=None, init=False)

    @property
    def policy(self) -> Policy:
        """Return what decides which tensors train; made on the first minibatch."""
        assert self._policy is not None, "`prepare` makes it"
        return self._policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        self._policy = policy

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

    def spent_s(self) -> float:
        """Return the seconds that count against the budget: of training, or with a deadline all."""
        return self.watch.training() if self.deadline is None else self.deadline.spent_s()

    def follow_deadline(self) -> None:
        """Set when the last step must be done, by what is known now of what comes after it."""
        if self.deadline is not None:
            self.budget.seconds = self.deadline.for_training_s()

    def used_share(self) -> float:
        """Return the share of the budget that is used, 0 to 1."""
        return self.budget.share(self.progress.step, self.spent_s())

    @property
    def by_clock(self) -> bool:
        """Return whether the clock ends the run, not a number of steps."""
        return self.budget.seconds is not None

    def ends(self) -> bool:
        """Return whether the budget is used up."""
        recent_ms = self.progress.recent_ms[-50:]
        step_s = 1e-3 * float(np.median(recent_ms)) if recent_ms else 0.0
        return self.budget.used_up(self.progress.step, self.spent_s(), step_s)

    def pass_ends_s(self) -> Optional[float]:
        """Return when, by `spent_s`, a pass over the images that begins now has to end; None: never.

        A deadline cuts it short. A share of full training's time does not: a head that was solved on a part
        of the images is worth less than the time that is kept.
        """
        if self.budget.seconds is None or self.deadline is None:
            return None
        spent_s = self.spent_s()
        share = 1.0 if self.head_alone else _MOST_OF_BUDGET
        return spent_s + share * max(0.0, self.budget.seconds - spent_s)

    def full_step_ms(self) -> Optional[float]:
        """Return the ms of a full step: by those measured for comparison, else by the run's own.

        None before the first of either.
        """
        if self.progress.timed_full_ms:
            return typical_ms(self.progress.timed_full_ms)
        trains_all = self._policy is not None and self._policy.mask.all()
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
        if self.by_clock:
            return 1e-3 * full_ms * self.epochs * self.steps_per_epoch + self.compiling_s()
        compiling = self.watch.of(stopwatch.FULL_TRACING) > 0  # the first run, a step, is in that
        return 1e-3 * full_ms * (self.progress.step - compiling) + self.watch.of(*stopwatch.SHARED)

    def compiling_s(self) -> float:
        """Return the seconds spent so far on making variables and compiling the full step."""
        return self.watch.of(stopwatch.BUILDING, stopwatch.FULL_TRACING)

    def seconds_left(self) -> Optional[float]:
        """Return how long the run will go on, validation included, at its pace so far; None before a step."""
        if self.by_clock:
            return self.budget.seconds_until(1.0, self.spent_s())
        steps, spent_s = self.progress.step, self.watch.total(CALIBRATION)
        return spent_s / steps * (self.epochs * self.steps_per_epoch - steps) if steps else None
