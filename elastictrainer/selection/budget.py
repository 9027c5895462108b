"""Keep the training time at the requested ratio: measured step times correct the profile. NumPy only."""

import copy
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from elastictrainer.profiler.timings import TensorTimings
from elastictrainer.selection.full_steps import FullSteps, typical_ms
from elastictrainer.selection.policy import FULL, PLAIN, RECORDING, REPLAY
from elastictrainer.selection.response import ResponseOfSaving, ResponseOfTime
from elastictrainer.selection.schedule import Schedule


class Budget:
    """What this run's steps cost, and what time a selection may therefore have: a closed loop.

    Full steps, measured now and then, tell what full training would take, and rho of that is the run's
    budget. What is left of it, over the steps that are left, is the target: the ratio of a selected step's
    time to a full one's. Selected steps measured next to full ones tell how the clock's ratio responds to the
    predicted one, and the selector is asked for the prediction that meets the target. A review follows each
    measurement. It asks for one correction at most, where that changes the step time, and moves the end of
    the run, by more than noise and its own cost do.
    """

    # Selected steps that are compared with full ones; a new selection is reviewed after as many. If the first
    # review came after the next burst, a wrong profile would miss the target of the first interval.
    WINDOW = 64
    TOLERANCE = 0.05  # of the target; a selection this near stays: with less, noise makes most corrections
    # Of full training's time: with reuse, the least by which a correction has to move the end of the run.
    # Without it, noise makes most of them where rho is small; a run may be off by 0.02.
    SLACK = 0.005
    OFF = 0.1  # a profile that is off by more, in two reviews in a row, is to be renewed

    def __init__(self, rho: float, timings: TensorTimings, schedule: Schedule):
        """
        Args:
            rho: requested training time over full training's.
            timings: the profile; replaced when it is renewed.
            schedule: of the run.
        """
        self.rho = rho
        self.timings = timings
        self.schedule = schedule
        self._full = FullSteps()
        self._response = self._new_response()
        self._selected_ms: List[float] = []  # the latest of this selection and kind
        self._selected_count = 0
        self._predicted: Dict[str, float] = {}  # ratio of this selection's steps, by kind
        self._measured: Optional[float] = None  # the same, by the clock, of the latest kind
        self._full_is_new = False  # full steps were timed since the last one
        self._believed: Dict[str, float] = {}  # the ratio by both, by kind
        self._planned: Optional[float] = None  # the ratio that a step after the next selection was to have
        self._kind: Optional[str] = None  # of the latest step
        self._window = self.WINDOW  # of this selection's steps before its first review
        self._review_due = False
        self._reviews_off = 0

    def state(self) -> Dict[str, Any]:
        """What was measured so far, as JSON values."""
        state = {k: v for k, v in vars(self).items() if k not in ("rho", "timings", "schedule")}
        return copy.deepcopy({**state, "_full": vars(self._full), "_response": vars(self._response)})

    def restore(self, state: Dict[str, Any]) -> None:
        """Continue from `state`."""
        state = copy.deepcopy(state)
        vars(self._full).update(state.pop("_full"))
        vars(self._response).update(state.pop("_response"))
        vars(self).update(state)

    def _new_response(self) -> Union[ResponseOfSaving, ResponseOfTime]:
        return ResponseOfTime() if self.schedule.reuse else ResponseOfSaving()

    def new_profile(self, timings: TensorTimings, predicted: Optional[Mapping[str, float]] = None) -> None:
        """Predict by another profile, which says `predicted` of the selection, from here on."""
        self.timings = timings
        self._predicted = dict(predicted or {})
        self._response = self._new_response()
        self._reviews_off = 0

    def new_selection(
        self, predicted: Mapping[str, float], planned_ratio: Optional[float] = None, corrected: bool = False
    ) -> None:
        """Train another selection from here on.

        Args:
            predicted: what its steps take of a full one by the profile, by their kind.
            planned_ratio: what a step after the next selection is to take; None: as before.
            corrected: it replaces one whose time was off.
        """
        self._predicted = dict(predicted)
        self._planned = self._planned if planned_ratio is None else planned_ratio
        self._measured = None
        self._believed = {}
        self._selected_ms = []
        self._selected_count = 0
        self._kind = None
        # A correction that is soon followed by another, on as little evidence, could go on for ever.
        self._window = self.schedule.EVERY if corrected and self.schedule.reuse else self.WINDOW
        self._review_due = False
        self._reviews_off = 0

    def record(self, step: int, ms: float, kind: str) -> None:
        """Training step number `step`, input pipeline included, took `ms`; its kind is as in `Policy`."""
        changed, before = kind != self._kind, self._kind
        self._kind = kind
        if changed:  # the first step after one of another graph takes longer and does not count
            if kind == FULL:
                self._full.begin(step)
                return
            if before != FULL:
                self._selected_ms, self._selected_count = [], 0
            if self._measured is not None:
                self._measure(kind)
        elif kind == FULL:
            self._full.add(ms)
        else:
            self._selected_count += 1
            most = self.schedule.EVERY if self.schedule.reuse else self.WINDOW
            self._selected_ms = [*self._selected_ms[1 - most :], ms]
            again = self.schedule.reuse and self._selected_count % self.schedule.EVERY == 0
            if self._selected_count == self._window or again:
                self._measure(kind)
                if self.schedule.reuse:
                    self._follow(step, kind)

    def record_full(self, step: int, times: Sequence[float]) -> None:
        """Full steps that were made beside the run, before step number `step`, took `times` (ms).

        The steps that follow are compared with them: a machine may be slow for seconds, and what is measured
        at one moment is slow as a whole.
        """
        if times:
            self._full.begin(step, times)
            self._kind = FULL
            self._selected_ms, self._selected_count = [], 0
            self._full_is_new = True

    def _measure(self, kind: str) -> None:
        """Compare the latest selected steps with the latest full ones."""
        full_ms, predicted = self.full_step_ms(), self._predicted.get(kind)
        if full_ms is None or predicted is None or not self._selected_ms:
            return
        if self.schedule.reuse and kind in self._believed and not self._full_is_new:
            self._review_due = kind != RECORDING
            return
        self._measured = typical_ms(self._selected_ms) / full_ms
        self._believed[kind] = self._response.learn(kind, predicted, self._measured)
        self._full_is_new = False
        self._review_due = kind != RECORDING

    def _follow(self, step: int, kind: str) -> None:
        """Note what a full step would take now, where none comes: as the steps that do come, it changes."""
        if kind in self._believed:
            self._full.begin(step, [typical_ms(self._selected_ms) / self._believed[kind]])

    def full_step_ms(self) -> Optional[float]:
        """What a full step takes now, by the latest that followed one another; None before the first."""
        return self._full.now_ms()

    def full_training_ms(self, steps: int) -> Optional[float]:
        """What the first `steps` steps would have taken, all of them full; None before the first full one."""
        return self._full.training_ms(steps)

    def measured_ratio(self) -> Optional[float]:
        """A step of this selection over a full one, by the clock; None until enough were measured."""
        return self._measured

    def target_ratio(
        self, step: int, spent_s: float, upcoming_s: float = 0.0, shared_s: float = 0.0
    ) -> float:
        """What a selected step may take of a full one from `step` on, so that the run keeps to rho.

        Args:
            step: steps done.
            spent_s: training seconds so far.
            upcoming_s: the known cost that is to come beside the steps, selections above all.
            shared_s: the run's time beside its steps, from first to last, that full training takes as well.
        """
        now_ms, so_far_ms = self.full_step_ms(), self.full_training_ms(step)
        full_left = self.schedule.full_left(step)
        selected_left = self.schedule.steps - step - full_left
        if now_ms is None or so_far_ms is None or selected_left <= 0:
            return self.rho
        full_run_ms = so_far_ms + now_ms * (self.schedule.steps - step) + 1e3 * shared_s
        left_ms = self.rho * full_run_ms - 1e3 * (spent_s + upcoming_s) - full_left * now_ms
        return float(np.clip(left_ms / selected_left / now_ms, 0.0, 1.0))

    def replay_target(self, step: int, target_ratio: float) -> float:
        """What a replayed step may take of a full one from `step` on.

        What the run has left over its plan, or lacks, is shared out evenly: so much more or less than now.

        Args:
            step: steps done.
            target_ratio: see `target_ratio`: of the mean step that is left, recording ones included.
        """
        ratio = self._believed.get(REPLAY)
        if ratio is None or self._planned is None:
            return target_ratio
        here = self.schedule.selected_left(step)
        later = self.schedule.steps - step - self.schedule.full_left(step) - here
        expected = (here * ratio + later * self._planned) / max(1, here + later)
        return float(np.clip(ratio + target_ratio - expected, 0.0, 1.0))

    def rho_for_selector(self, target_ratio: float, rho_min: Optional[float] = None) -> float:
        """The predicted ratio at which a step should measure `target_ratio`, from `rho_min` to 1.

        Without `rho_min` from the profile's.
        """
        lowest = self.timings.rho_min if rho_min is None else rho_min
        return float(np.clip(self._response.prediction_for(target_ratio), lowest, 1.0))

    def review_due(self) -> bool:
        """Whether this selection was measured anew since the last `review`."""
        return self._review_due

    def review(
        self, step: int, target_ratio: float, cost_s: float, rho_min: Optional[float] = None
    ) -> Tuple[bool, bool]:
        """Compare the selection's measured time with its target, and with its predicted time.

        Args:
            step: steps done.
            target_ratio: what `target_ratio` says now.
            cost_s: what another selection costs, its compilation above all.
            rho_min: of the selections that are possible now; None: of all.

        Returns:
            Whether a correction pays, and whether the profile is to be renewed.
        """
        self._review_due = False
        full_ms = self.full_step_ms()
        predicted = self._predicted.get(self._kind or PLAIN)
        if self._measured is None or predicted is None or full_ms is None:
            return False, False
        off = abs(self._measured / predicted - 1) > self.OFF
        self._reviews_off = self._reviews_off + 1 if off else 0
        moved = self._response.value * abs(self.rho_for_selector(target_ratio, rho_min) - predicted)
        moved_s = 1e-3 * moved * full_ms * self.schedule.selected_left(step)
        slack_s = 1e-3 * self.SLACK * full_ms * self.schedule.steps * self.schedule.reuse
        pays = moved > self.TOLERANCE * target_ratio and moved_s > slack_s + cost_s
        return pays, self._reviews_off >= 2
