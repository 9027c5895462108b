"""Keep the training time at the requested ratio: measured steps correct what the profile predicts. NumPy only."""

from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from elastictrainer.profiler.timings import TensorTimings


class Pace:
    """The plan of a run that selects: when to select, which steps train every tensor, and what time a selection may have.

    Full steps before a selection bring the optimizer's momentum up to date for every tensor: otherwise the tensors in
    training, with ten gradients' worth of momentum, would seem to matter ten times as much as those at rest. They and
    a few more in between tell what full training costs in this run; the other steps tell what the selection costs.

    A step here holds more than a profiled one (the input pipeline above all), so the selector's budget is set on the
    profile's scale such that the run's own ratio comes out as requested, costs of selecting included.
    """

    OPENING = 48  # full steps before the first selection: they lift a zero head off zero
    PRIMING = 20  # full steps before every other one: momentum reaches nine tenths of its steady state
    EVERY = 300  # a burst of full steps each so many steps
    BURST = 3
    _UNSETTLED = 1  # steps after a change of graph that are not typical
    _LIMIT = 0.1  # how far a step's share of the budget may depart from rho to make up for the past

    def __init__(self, rho: float, timings: TensorTimings, epochs: int, steps_per_epoch: int, interval: int):
        """
        Args:
            rho: requested training time over full training's.
            timings: the profile.
            epochs: of the run.
            steps_per_epoch: a short epoch has fewer full steps.
            interval: epochs between two selections. A head that starts from zero says little about the tensors below
                it, so the very first selection, early in the first epoch, is renewed after half an interval. In the
                last half interval none is made: it could hardly pay for itself.
        """
        self.rho = rho
        self.timings = timings
        self.full_ms: List[float] = []
        self.chosen_ms: List[float] = []
        self._chosen_predicted: Optional[float] = None
        self._last_was_full: Optional[bool] = None
        self._unsettled = 0

        opening = max(1, min(self.OPENING, steps_per_epoch // 4))
        priming = max(1, min(self.PRIMING, steps_per_epoch // 8))
        half = interval // 2
        selection_epochs = range(max(1, half), epochs - half, interval)
        self.selection_steps = [opening, *(epoch * steps_per_epoch for epoch in selection_epochs)]
        step = np.arange(epochs * steps_per_epoch)
        self._full = step % self.EVERY >= self.EVERY - self.BURST
        self._full[:opening] = True
        for selection in self.selection_steps[1:]:
            self._full[selection - priming : selection] = True

    def selection_due(self, step: int) -> bool:
        """Whether tensors are to be selected before step number `step` (from 0)."""
        return step in self.selection_steps

    def selections_left(self, step: int) -> int:
        """How many selections are due at `step` or later."""
        return sum(selection >= step for selection in self.selection_steps)

    def full_step_due(self, step: int) -> bool:
        """Whether step number `step` (from 0) is to train every tensor."""
        return bool(self._full[step])

    def new_selection(self, predicted_ms: float) -> None:
        """A selection that the profile says takes `predicted_ms` is trained from here on."""
        self.chosen_ms = []
        self._chosen_predicted = predicted_ms
        self._last_was_full = None

    def record(self, ms: float, was_full: bool) -> None:
        """A training step, input pipeline included, took `ms`."""
        if was_full != self._last_was_full:
            self._last_was_full = was_full
            self._unsettled = self._UNSETTLED
        if self._unsettled:
            self._unsettled -= 1
            return
        (self.full_ms if was_full else self.chosen_ms).append(ms)

    def state(self) -> Dict[str, Any]:
        """What was measured so far, as JSON values."""
        return {"full_ms": self.full_ms, "chosen_ms": self.chosen_ms, "chosen_predicted": self._chosen_predicted}

    def restore(self, state: Dict[str, Any]) -> None:
        """Go on from `state`."""
        self.full_ms, self.chosen_ms = list(state["full_ms"]), list(state["chosen_ms"])
        self._chosen_predicted = state["chosen_predicted"]

    def full_step_ms(self) -> Optional[float]:
        """Median ms of this run's full steps; None before the first."""
        return float(np.median(self.full_ms)) if self.full_ms else None

    def rho_for_selector(self, step: int, spent_s: float, upcoming_s: float = 0.0) -> float:
        """The ratio to hand to the selector, on the profile's scale, within what a selection can have.

        Args:
            step: steps done.
            spent_s: training seconds so far.
            upcoming_s: what the selections to come will cost, as far as known.
        """
        rho_min = self.timings.rho_min
        whole = self.full_step_ms()
        full_left = int(self._full[step:].sum())
        chosen_left = len(self._full) - step - full_left
        if whole is None or chosen_left <= 0:
            return float(np.clip(self.rho, rho_min, 1.0))
        left_ms = self.rho * whole * len(self._full) - 1e3 * (spent_s + upcoming_s) - full_left * whole
        low, high = (self.rho * whole * (1 + sign * self._LIMIT) for sign in (-1, 1))
        target = float(np.clip(left_ms / chosen_left, low, high))
        slope, constant = self._run_from_profile(whole)
        return float(np.clip((target - constant) / slope / self.timings.full_ms, rho_min, 1.0))

    def _run_from_profile(self, whole: float) -> Tuple[float, float]:
        """(slope, constant ms) that turn the profile's ms into this run's."""
        profiled = self.timings.full_ms
        if self._chosen_predicted is not None and len(self.chosen_ms) >= 5:
            chosen = float(np.median(self.chosen_ms))
            if profiled - self._chosen_predicted > 0.1 * profiled:
                slope = float(np.clip((whole - chosen) / (profiled - self._chosen_predicted), 0.5, 2.0))
                return slope, chosen - slope * self._chosen_predicted
        if whole >= profiled:
            return 1.0, whole - profiled
        return whole / profiled, 0.0
