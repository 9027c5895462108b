"""The policy of a scheme that selects at every interval and corrects the selection in between. NumPy only."""

import contextlib
from typing import Any, Callable, ContextManager, Dict, List, Optional, Tuple, Union

import numpy as np
from numpy.typing import NDArray

from elastictrainer.profiler.timings import TensorTimings
from elastictrainer.selection.budget import Budget
from elastictrainer.selection.clock import (
    IMPORTANCE,
    PROFILING,
    RECURRING,
    SELECTION,
    SHARED,
    TIMING,
    TRACING,
    Clock,
)
from elastictrainer.selection.policy import PLAIN, RECORDING, REPLAY, Log, Renewal, no_log
from elastictrainer.selection.selector import KEPT, OVER_BUDGET, Solver, choose
from elastictrainer.selection.shares import shares

SELECTED = "selected"  # by new importances
REMARKS = {
    None: "",
    KEPT: ", as before: no tensor's update promises to lower the loss",
    OVER_BUDGET: ", over the budget of {rho:.3f}: no tensor of positive importance costs less",
}


class ElasticPolicy:
    """Trains the selected tensors, and all of them in the full steps of the schedule.

    Attributes:
        mask: (N,) bool: the latest selection; None before the first.
        masks: every selection so far, corrections included.
        corrections: how many of them reused the importances of the one before.
        budget: what steps cost, and what time a selection may have.
        importance: (N,) the latest; None before the first.
        interval, epochs: see `Policy`.
    """

    TRACED = 4  # full steps that a renewed profile is made from; a burst of the schedule has one more

    def __init__(
        self,
        budget: Budget,
        score: Callable[[int], NDArray[np.float64]],
        clock: Clock,
        *,
        solver: Union[str, Solver] = "dp",
        feedback: bool = True,
        reprofile: str = "auto",
        at_rest: Callable[[NDArray[np.bool_]], None] = lambda mask: None,
        time_full: Callable[[int], List[float]] = lambda step: [],
        renewal: Optional[Renewal] = None,
        log: Log = no_log,
        say: Callable[[str], None] = lambda line: None,
    ):
        """
        Args:
            budget: of the run, with its profile and its schedule.
            score: from a step's number to the (N,) importances of the tensors.
            clock: accounts for the run's time; IMPORTANCE, TIMING, SELECTION, PROFILING are its laps here.
            feedback: correct the budget by measured times; else the profile alone decides, and the same
                profile and seed give the same selections.
            solver: see `select`.
            reprofile: see SelectionSettings.
            at_rest: called with the mask whenever the tensors outside it cease to train.
            time_full: makes full steps beside the run, before a step's number, and says what each took (ms).
            renewal: makes a new profile; None: the profile stays.
            log: takes the record of each selection.
            say: takes a line for the user.
        """
        self.budget = budget
        self.mask: Optional[NDArray[np.bool_]] = None
        self.masks: List[NDArray[np.bool_]] = []
        self.corrections = 0
        self.importance: Optional[NDArray[np.float64]] = None
        self._score, self._clock = score, clock
        self._solver, self._feedback = solver, feedback
        self._reprofile = "never" if renewal is None else reprofile
        self._at_rest, self._renewal, self._log, self._say = at_rest, renewal, log, say
        self._time_full = time_full
        self._all = np.ones(len(budget.timings), bool)
        self.interval = 0
        self.epochs = 1.0
        self._recorded: Optional[NDArray[np.bool_]] = None  # what trained when the recording began
        self._trainable: Optional[NDArray[np.bool_]] = None  # what may train while it lasts
        self._was_full = False
        self._renew = False  # the profile is to be renewed, as soon as full steps come
        self._may_renew = True  # once an interval
        self._compile_s = 0.0  # what the latest graph took to build
        self._tracing: Optional[Renewal] = None  # while a trace is made
        self._minibatch: Any = None

    @property
    def timings(self) -> TensorTimings:
        """The profile, the renewed one where it was renewed."""
        return self.budget.timings

    @property
    def selects(self) -> bool:
        """See `Policy`; a run that is too short to select trains every tensor."""
        return bool(self.budget.schedule.selection_steps)

    @property
    def selections(self) -> int:
        """How many selections were made by new importances."""
        return len(self.masks) - self.corrections

    def next_mask(self, step: int, epoch: int, batch: int) -> NDArray[np.bool_]:
        """See `Policy`."""
        selecting = self.budget.schedule.selection_due(step)
        if self._tracing and (selecting or not self.budget.schedule.burst_left(step)):
            self._renew_profile(step, self._tracing, choose_again=not selecting)
        if self.budget.schedule.timing_due(step):
            with self._clock.lap(TIMING):
                self.budget.record_full(step, self._time_full(step))
        if selecting:
            self._may_renew = True
            with self._clock.lap(IMPORTANCE):
                self.importance = self._score(step)
            self.interval += 1
            self.epochs = self.budget.schedule.epochs_from(step)
            self._recorded = self._trainable = None
            self._choose(step, SELECTED)
        full = self.mask is None or self.budget.schedule.full_step_due(step)
        if self.mask is not None and not full:
            if self._was_full or selecting:
                self._at_rest(self.mask)
            elif self._feedback and self.budget.review_due():
                self._review(step)
        elif self._renewal is not None and self._was_full and self._wants_trace(step):
            self._renewal.begin()
            self._tracing = self._renewal
        self._was_full = full
        return self._all if self.mask is None or full else self.mask

    def recording_begins(self, trainable: NDArray[np.bool_]) -> None:
        """See `Policy`."""
        self._recorded, self._trainable = self.mask, trainable

    def without_recording(self, step: int) -> NDArray[np.bool_]:
        """See `Policy`: as every step takes longer than planned, the selection is made again."""
        self.epochs = 1.0
        self._recorded = self._trainable = None
        self._choose(step, "without recording: " + SELECTED)
        assert self.mask is not None
        self.budget.new_selection(self._predicted(self.mask))
        return self.mask

    def stepping(self) -> ContextManager[None]:
        """See `Policy`."""
        return self._tracing.step() if self._tracing else contextlib.nullcontext()

    def step_taken(self, step: int, ms: float, minibatch: Any, compiled: bool, kind: str) -> None:
        """See `Policy`."""
        self._minibatch = self._minibatch if minibatch is None else minibatch
        if compiled:
            self._compile_s = 1e-3 * ms
        elif not self._tracing:
            self.budget.record(step, ms, kind)

    def full_step_ms(self) -> Optional[float]:
        """See `Policy`."""
        return self.budget.full_step_ms()

    def full_training_ms(self, steps: int) -> Optional[float]:
        """See `Policy`."""
        return self.budget.full_training_ms(steps)

    def state(self) -> Dict[str, Any]:
        """See `Policy`."""
        return {
            "budget": self.budget.state(),
            "masks": [np.flatnonzero(mask).tolist() for mask in self.masks],
            "importance": None if self.importance is None else self.importance.tolist(),
            "corrections": self.corrections,
            "was_full": self._was_full,
            "renew": self._renew,
            "may_renew": self._may_renew,
            "compile_s": self._compile_s,
            "interval": self.interval,
            "epochs": self.epochs,
            "schedule_interval": self.budget.schedule.interval,
            **{name: _indices(getattr(self, "_" + name)) for name in ("recorded", "trainable")},
        }

    def restore(self, state: Dict[str, Any]) -> None:
        """See `Policy`."""
        self.budget.restore(state["budget"])
        self.masks = [self._as_mask(selected) for selected in state["masks"]]
        self.mask = self.masks[-1] if self.masks else None
        self.importance = None if state["importance"] is None else np.array(state["importance"])
        self.corrections = state["corrections"]
        self._was_full, self._compile_s = state["was_full"], state["compile_s"]
        self._renew, self._may_renew = state["renew"], state["may_renew"]
        self.interval, self.epochs = state["interval"], state["epochs"]
        self.budget.schedule = self.budget.schedule.with_interval(state["schedule_interval"])
        self._recorded, self._trainable = self._as_mask(state["recorded"]), self._as_mask(state["trainable"])

    def close(self) -> None:
        """See `Policy`."""
        tracing, self._tracing = self._tracing, None
        if tracing:
            tracing.abandon()

    def target_ratio(self, step: int) -> float:
        """What a step of the selection may take of a full one from `step` on; see `Budget.target_ratio`."""
        if not self._feedback:
            return self.budget.rho
        schedule, clock = self.budget.schedule, self._clock
        past = len(schedule.selection_steps) - schedule.selections_left(step)
        due = schedule.selection_due(step)  # its importances have been computed, its graph is to come
        # What selections and their graphs have cost so far tells what another may.
        graph_s = clock.of(TRACING) / max(1, past + self.corrections)
        cost_s = clock.of(IMPORTANCE, SELECTION, PROFILING) / max(1, past + due) + graph_s
        to_come_s = cost_s * (schedule.selections_left(step) - due) + graph_s * due
        begun = schedule.epochs_begun(step)
        later = (schedule.epochs - begun) / begun
        recurring_s = clock.of(*RECURRING) * later
        timing_s = 1e-3 * schedule.timed_left(step) * (self.budget.full_step_ms() or 0.0)
        return self.budget.target_ratio(
            step,
            clock.training(),
            upcoming_s=to_come_s + recurring_s + timing_s,
            shared_s=clock.of(*SHARED) + recurring_s,
        )

    def _possible(self) -> TensorTimings:
        """The profile of what can be selected now, for the mean step of the interval or of what is left."""
        if self._recorded is None or self._trainable is None:
            return self.timings.over(self.epochs)
        return self.timings.after_recording(self._recorded, self._trainable)

    def _predicted(self, mask: NDArray[np.bool_]) -> Dict[str, float]:
        """What a step under `mask` takes of a full one, by its kind."""
        timings = self.timings
        if self._recorded is not None:
            times = {REPLAY: self._possible().step_time(mask), RECORDING: timings.recording_time(mask)}
        elif self.epochs > 1:
            times = {REPLAY: timings.replay_time(mask), RECORDING: timings.recording_time(mask)}
        else:
            times = {PLAIN: timings.step_time(mask)}
        return {kind: ms / timings.full_ms for kind, ms in times.items()}

    def _targets(self, step: int) -> Tuple[float, float]:
        """What a step may take of a full one up to the next selection, and what after it."""
        budget, target = self.budget, self.target_ratio(step)
        if not self._feedback:
            return target, target
        if self._recorded is not None:
            return budget.replay_target(step, target), target
        here, later = shares(budget.schedule, budget.rho, step)
        return min(1.0, here * target), later * target

    def _choose(self, step: int, what: str) -> None:
        """Choose by the latest importances, and train that from here on."""
        corrected, importance = what != SELECTED, np.asarray(self.importance)
        possible = self._possible()
        with self._clock.lap(SELECTION):
            target, later = self._targets(step)
            lowest = possible.rho_min
            rho = self.budget.rho_for_selector(target, lowest) if self._feedback else max(target, lowest)
            mask, exception = choose(possible, importance, rho, self._solver, self.mask)
        if corrected and (mask == self.mask).all():
            return
        step_ms = possible.step_time(mask)
        planned = None
        if not corrected:
            planned = later
            if step_ms >= self.timings.step_time(mask):
                self.epochs = 1.0  # recording would not pay
        record = {
            "step": step,
            "selected": np.flatnonzero(mask).tolist(),
            "rho_target": target,
            "rho_selector": rho,
            "predicted_ms": step_ms,
            "predicted_ratio": step_ms / self.timings.full_ms,
            "importance": importance.tolist(),
            "importance_selected": float(importance[mask].sum()),
            "importance_positive": float(importance[importance > 0].sum()),
            "kept_previous": exception == KEPT,
            "over_budget": exception == OVER_BUDGET,
            "corrected": corrected,
        }
        self.budget.new_selection(self._predicted(mask), planned, corrected)
        self.corrections += corrected
        self.mask = mask
        self.masks.append(mask)
        if corrected:
            self._at_rest(mask)
        self._log(record)
        share = record["importance_selected"] / max(record["importance_positive"], 1e-30)
        self._say(
            f"{what} {mask.sum()} of {len(mask)} tensors, predicted {record['predicted_ratio']:.3f} of a "
            f"full step, with {100 * share:.0f} % of the importance{REMARKS[exception].format(rho=rho)}"
        )

    def _review(self, step: int) -> None:
        """Correct the selection if its time is off; plan a new profile if the prediction is off."""
        rho_min = self._possible().rho_min
        pays, renew = self.budget.review(step, self._targets(step)[0], self._compile_s, rho_min)
        if renew and self._may_renew and self._reprofile != "never":
            self._renew, self._may_renew = True, False
        if pays:
            self._choose(step, f"measured {self.budget.measured_ratio():.3f} of a full step; corrected to")

    def _as_mask(self, selected: Optional[List[int]]) -> Any:
        return None if selected is None else np.isin(np.arange(len(self._all)), selected)

    def _wants_trace(self, step: int) -> bool:
        """Whether a trace is to begin with full step number `step`, the graph of the full step being warm."""
        left = self.budget.schedule.burst_left(step)
        always = self._reprofile == "always" and self.budget.schedule.selection_due(step + left)
        return not self._tracing and (self._renew or always) and left <= self.TRACED

    def _renew_profile(self, step: int, tracing: Renewal, choose_again: bool) -> None:
        """Make a profile of the full steps just traced, and choose by it."""
        with self._clock.lap(PROFILING):
            self._tracing, self._renew = None, False
            full_ms = self.full_step_ms() or self.timings.full_ms
            new = tracing.finish(self.timings, full_ms, step, self._minibatch)
            self.budget.new_profile(new)
            if self.mask is not None:
                self.budget.new_profile(new, self._predicted(self.mask))
        self._say(f"the profile was renewed: full step {new.full_ms:.1f} ms, rho_min {new.rho_min:.3f}")
        if choose_again and self.mask is not None:
            self._choose(step, "by the new profile, corrected to")


def _indices(mask: Optional[NDArray[np.bool_]]) -> Optional[List[int]]:
    return None if mask is None else np.flatnonzero(mask).tolist()
