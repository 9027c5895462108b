"""When a run that selects does what: which steps select, and which train every tensor. NumPy only."""

from typing import Iterable, Optional

import numpy as np


class Schedule:
    """The calendar of a run that selects.

    Full steps before a selection bring the optimizer's momentum up to date for every tensor: otherwise the
    tensors in training, with ten gradients' worth of momentum, would seem to matter ten times as much as
    those at rest. They and a few more in between tell what full training costs in this run.

    Attributes:
        epochs, steps_per_epoch, steps: of the run.
        interval, reuse: as given.
        selection_steps: ascending numbers (from 0) of the steps before which tensors are selected.
    """

    OPENING = 48  # full steps before the first selection: they lift a zero head off zero
    PRIMING = 20  # full steps before every other one: momentum reaches nine tenths of its steady state
    TIMED = 3  # with reuse, full steps beside the run: few and often, as a machine may be slow for seconds
    WARM_UP = 1  # before these: the first, after a step of another graph, does not count
    EVERY = 300  # full steps are timed about each so many steps: 1 to 2 % of full training's time
    BURST = 5  # the first, after a step of another graph, does not count; four are left

    def __init__(self, epochs: int, steps_per_epoch: int, interval: Optional[int], reuse: bool = False):
        """
        Args:
            epochs: of the run.
            steps_per_epoch: a short epoch has fewer full steps.
            interval: epochs between two selections. A head that starts from zero says little about the
                tensors below it, so the first selection, early in the first epoch, is replaced after half an
                interval. In the last half interval none is made: it could hardly pay for itself. None: no
                tensor is ever selected, every step is full.
            reuse: what the first epoch of an interval records is replayed in the others. No full steps come
                after the opening: they would change what was recorded. Nor do any come between intervals: at
                a rate at which selected tensors train well, full steps can undo in twenty what an epoch has
                learned. They are made beside the run, and put back: before every selection but the
                first, and where an epoch begins (see `timing_due`).
        """
        self.interval = interval
        self.reuse = reuse
        self.epochs = epochs
        self.steps_per_epoch = steps_per_epoch
        self.steps = epochs * steps_per_epoch
        opening = max(1, min(self.OPENING, steps_per_epoch // 4))
        priming = max(1, min(self.PRIMING, steps_per_epoch // 8))
        if interval is None:
            self.selection_steps = []
            self._full = np.ones(self.steps, bool)
            return
        half = max(2, interval // 2) if reuse else interval // 2  # one epoch would record for nothing
        selection_epochs = range(max(1, half), epochs - half, interval)
        self.selection_steps = [opening, *(epoch * steps_per_epoch for epoch in selection_epochs)]
        self._full = (np.arange(self.steps) % self.EVERY >= self.EVERY - self.BURST) & (not reuse)
        self._full[:opening] = True
        for selection in self.selection_steps[1:] if not reuse else ():
            self._full[selection - priming : selection] = True

    def with_interval(self, interval: Optional[int]) -> "Schedule":
        """The calendar of the same run with another interval."""
        return Schedule(self.epochs, self.steps_per_epoch, interval, self.reuse)

    def selection_due(self, step: int) -> bool:
        """Whether tensors are to be selected before step number `step` (from 0)."""
        return step in self.selection_steps

    def epochs_begun(self, step: int) -> int:
        """How many epochs have begun when step number `step` is due."""
        return min(self.epochs, step // self.steps_per_epoch + 1)

    def selections_left(self, step: int) -> int:
        """How many selections are due at `step` or later."""
        return sum(selection >= step for selection in self.selection_steps)

    def full_step_due(self, step: int) -> bool:
        """Whether step number `step` (from 0) is to train every tensor."""
        return step < self.steps and bool(self._full[step])

    def timing_due(self, step: int) -> bool:
        """Whether full steps are to be timed beside the run before step number `step` (from 0)."""
        if not self.reuse or not self.selection_steps or step < self.selection_steps[0]:
            return False
        if step == self.selection_steps[0] and step > 2 * self.TIMED:
            return False  # the opening has just told it, by more steps
        epoch_begins = step % self.steps_per_epoch == 0
        multiple_passed = step % self.EVERY < self.steps_per_epoch  # of `EVERY`, in the epoch before
        return step in self.selection_steps or (epoch_begins and multiple_passed)

    def timed_left(self, step: int) -> int:
        """How many full steps are made beside the run after step number `step`."""
        may_be = {*self.selection_steps, *range(0, self.steps, self.steps_per_epoch)}
        return self.timed_before(later for later in may_be if later > step)

    def timed_before(self, steps: Iterable[int]) -> int:
        """How many full steps are made beside the run right before the steps of these numbers."""
        return (self.WARM_UP + self.TIMED) * sum(self.timing_due(step) for step in steps)

    def burst_left(self, step: int) -> int:
        """How many full steps follow one another from `step` on, up to the next selection."""
        end = self.interval_end(step)
        selected = np.flatnonzero(~self._full[step:end])
        return int(selected[0]) if len(selected) else end - step

    def full_left(self, step: int) -> int:
        """How many full steps are due at `step` or later."""
        return int(self._full[step:].sum())

    def selected_left(self, step: int) -> int:
        """How many steps at `step` or later train the selected tensors only, up to the next selection."""
        return int((~self._full[step : self.interval_end(step)]).sum())

    def interval_end(self, step: int) -> int:
        """The number of the step before which the next selection is due, or of steps."""
        return next((s for s in self.selection_steps if s > step), self.steps)

    def epochs_from(self, step: int) -> float:
        """Over how many epochs an interval that begins at `step` records and replays; 1: it does not."""
        if not self.reuse:
            return 1.0
        recorded = self.steps_per_epoch - step % self.steps_per_epoch
        return max(1.0, self.selected_left(step) / recorded)

    def longest(self) -> float:
        """`epochs_from` of the interval that records for the longest time."""
        return max((self.epochs_from(step) for step in self.selection_steps), default=1.0)
