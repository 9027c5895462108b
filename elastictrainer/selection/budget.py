"""Keep the training time at the requested ratio: measured steps correct what the profile predicts. NumPy only."""

from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from elastictrainer.profiler.timings import TensorTimings
from elastictrainer.selection.schedule import Schedule


def typical_ms(measured: Sequence[float]) -> float:
    """The mean of step times, each counted as three times the median at most.

    A median would leave out what now and then makes a step longer and is part of any training; a mean would be at the
    mercy of a machine that was asleep meanwhile.
    """
    return float(np.minimum(measured, 3 * np.median(measured)).mean())


class Budget:
    """What this run's steps cost, and what time a selection may therefore have: a closed loop around the selector.

    A step here holds more than a profiled one (the input pipeline above all), and a device may become slower or faster
    while it trains. So full steps are measured again and again: the sum of what they would have cost all along is what
    full training would have taken, and rho of that is the budget. What is left of it, over the steps that are left, is
    the target of the selection; how much of a predicted saving the clock has shown so far turns the target into the
    ratio that the selector is asked for.
    """

    FIRST_CHECK = 64  # selected steps measured before the first check of a selection; then after every burst
    APART = 0.1  # a profile that is off by more, at two checks in a row, is to be renewed
    _UNSETTLED = 1  # steps after a change of graph that are not typical
    _LIMIT = 0.25  # how far a step's share of the budget may depart from rho to make up for the past
    _TOLERANCE = 0.015  # of a full step: a smaller gap between target and measured is left alone
    _PAYS = 2.0  # a correction must move this many times the seconds that it costs
    _WINDOW = 20  # selected steps that are held against the full ones next to them
    _FULL = 8  # full steps at least that the first check of a selection goes by
    _RESPONSES = 5  # latest measurements of the response, the median of which counts

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
        self._responses: List[float] = []  # measured saving over predicted saving, of the latest checks
        self._bursts: List[
            List[float]
        ] = []  # [step, ms, ms, ...] of the full steps that followed one another
        self._chosen_ms: List[float] = []  # the first steps of this selection, then the latest
        self._chosen_count = 0
        self._chosen_predicted: Optional[float] = None
        self._ratios: List[float] = []  # this selection over full, each from steps next to each other
        self._last_was_full: Optional[bool] = None
        self._unsettled = 0
        self._due = False
        self._corrected = False
        self._checks_apart = 0

    def state(self) -> Dict[str, Any]:
        """What was measured so far, as JSON values."""
        return {name: value for name, value in vars(self).items() if name not in ("rho", "timings", "schedule")}

    def restore(self, state: Dict[str, Any]) -> None:
        """Go on from `state`."""
        vars(self).update(state)

    def new_profile(self, timings: TensorTimings) -> None:
        """Go by another profile from here on."""
        self.timings = timings
        self._responses = []

    def new_selection(self, predicted_ratio: float, corrected: bool = False) -> None:
        """A selection that the profile says takes `predicted_ratio` of a full step is trained from here on.

        `corrected`: by the same scores as the one before; a second correction wants more to go by than the first.
        """
        self._corrected = corrected
        self._chosen_ms = []
        self._chosen_count = 0
        self._chosen_predicted = predicted_ratio
        self._ratios = []
        self._last_was_full = None
        self._due = False
        self._checks_apart = 0

    def record(self, step: int, ms: float, was_full: bool) -> None:
        """Training step number `step`, input pipeline included, took `ms`."""
        if was_full != self._last_was_full:
            after_burst = self._last_was_full and self._chosen_count >= self._WINDOW
            self._last_was_full = was_full
            self._unsettled = self._UNSETTLED
            if was_full:
                self._bursts.append([step])
            elif after_burst:
                self._hold_against_burst()
        if self._unsettled:
            self._unsettled -= 1
        elif was_full:
            self._bursts[-1].append(ms)
        else:
            self._chosen_count += 1
            window = self._WINDOW if self._chosen_count > self.FIRST_CHECK else self.FIRST_CHECK
            self._chosen_ms = [*self._chosen_ms[1 - window :], ms]
            if self._chosen_count == self.FIRST_CHECK and not self._ratios:
                self._hold_against_burst()

    def _hold_against_burst(self) -> None:
        """Note the ratio of the latest selected steps to the full steps next to them."""
        full: List[float] = []
        for burst in reversed(self._bursts):
            full += burst[1:]
            if self._ratios and full or len(full) >= self._FULL:
                break
        if full:
            self._ratios.append(typical_ms(self._chosen_ms) / typical_ms(full))
            self._due = True

    def full_step_ms(self) -> Optional[float]:
        """What a full step takes now, by the latest that followed one another; None before the first."""
        measured = [burst for burst in self._bursts if len(burst) > 1]
        return typical_ms(measured[-1][1:]) if measured else None

    def full_training_ms(self, steps: int) -> Optional[float]:
        """What the first `steps` steps alone would have taken, had all of them been full; None before the first full step.

        The full steps measured before and after each step tell; where none follow yet, the latest.
        """
        bursts = [burst for burst in self._bursts if len(burst) > 1]
        if not bursts:
            return None
        at = [burst[0] + len(burst) / 2 for burst in bursts]
        return float(np.interp(np.arange(steps), at, [typical_ms(burst[1:]) for burst in bursts]).sum())

    def measured_ratio(self) -> Optional[float]:
        """A step of this selection over a full one, by the clock; None until enough were measured."""
        return float(np.median(self._ratios)) if self._ratios else None

    def target_ratio(
        self, step: int, spent_s: float, upcoming_s: float = 0.0, shared_s: float = 0.0
    ) -> float:
        """What a step of the selection may take of a full one from `step` on, for the whole run to keep to rho.

        Args:
            step: steps done.
            spent_s: training seconds so far.
            upcoming_s: what is to come beside steps, selections above all, as far as known.
            shared_s: of the whole run beside its steps: what full training takes as well.
        """
        now = self.full_step_ms()
        full_left = self.schedule.full_left(step)
        chosen_left = self.schedule.steps - step - full_left
        if now is None or chosen_left <= 0:
            return self.rho
        whole_ms = self.full_training_ms(step) + now * (self.schedule.steps - step) + 1e3 * shared_s
        left_ms = self.rho * whole_ms - 1e3 * (spent_s + upcoming_s) - full_left * now
        return float(
            np.clip(left_ms / chosen_left / now, self.rho * (1 - self._LIMIT), self.rho * (1 + self._LIMIT))
        )

    def rho_for_selector(self, target_ratio: float) -> float:
        """The ratio on the profile's scale that should measure `target_ratio`, within what a selection can have."""
        response = float(np.median(self._responses)) if self._responses else self._response_expected()
        return float(np.clip(1 - (1 - target_ratio) / response, self.timings.rho_min, 1.0))

    def _response_expected(self) -> float:
        """Before any selection was measured: time beyond the profile's may be saved by selecting, or not; half of it."""
        now = self.full_step_ms()
        return 1.0 if now is None else (1 + min(1.0, self.timings.full_ms / now)) / 2

    def check_due(self) -> bool:
        """Whether something new was measured to hold this selection against its target."""
        return self._due

    def check(self, step: int, target_ratio: float, cost_s: float) -> Tuple[bool, bool]:
        """Hold the selection against the target, and the prediction against the clock.

        Args:
            step: steps done.
            target_ratio: what `target_ratio` says now.
            cost_s: what another selection costs, its compilation above all.

        Returns:
            Whether another selection pays, and whether the profile is to be renewed.
        """
        self._due = False
        measured = self.measured_ratio()
        if self._chosen_predicted < 0.95:
            response = float(np.clip((1 - measured) / (1 - self._chosen_predicted), 0.5, 2.0))
            self._responses = [*self._responses[1 - self._RESPONSES :], response]
        apart = abs(measured / self._chosen_predicted - 1) > self.APART
        self._checks_apart = self._checks_apart + 1 if apart else 0
        gap = abs(measured - target_ratio)
        moved_s = 1e-3 * gap * self.full_step_ms() * self.schedule.selected_left(step)
        sure = gap > self._TOLERANCE + 2 * self._uncertainty() and len(self._ratios) > self._corrected
        return sure and moved_s > self._PAYS * cost_s, self._checks_apart >= 2

    def _uncertainty(self) -> float:
        """Of the measured ratio, about one standard deviation."""
        if len(self._ratios) < 3:
            return 0.02 / len(self._ratios)
        return float(1.25 * np.std(self._ratios, ddof=1) / np.sqrt(len(self._ratios)))
