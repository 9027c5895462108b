"""The budget of a run: training steps, or seconds of its clock. No TensorFlow."""

from dataclasses import dataclass
from typing import Optional


@dataclass
class Budget:
    """The budget of a run, and the share of it that is used.

    A run that is given steps ends after them. A run that is given seconds ends when its clock has counted
    them, however long a step takes then: nothing has to be predicted or corrected for the promise to be kept.

    Attributes:
        steps: training steps of the run; None: the clock ends it.
        seconds: of the run by its clock; None: its steps end it.
        began_s: seconds of the clock before the first step. The learning rate falls from there on.
        least: steps that a run of seconds makes in any case, although it then takes longer.
    """

    steps: Optional[int] = None
    seconds: Optional[float] = None
    began_s: float = 0.0
    least: int = 1

    def share(self, step: int, spent_s: float) -> float:
        """Return the used share of the time for training steps, 0 to 1, after `step` steps and `spent_s`
        seconds of the run's clock.
        """
        if self.seconds is None:
            return min(1.0, step / self.steps) if self.steps else 0.0
        left_s = self.seconds - self.began_s
        by_time = (spent_s - self.began_s) / left_s if left_s > 0 else 1.0
        # While the least number of steps is not done, they have to be spread over the learning rate, too.
        return min(1.0, max(0.0, by_time if step >= self.least else min(by_time, step / self.least)))

    def used_up(self, step: int, spent_s: float, step_s: float) -> bool:
        """Return whether the run ends now, after `step` steps and `spent_s` seconds of its clock: half of
        another step, of `step_s` seconds, would be beyond the budget.
        """
        if self.seconds is None:
            return self.steps is not None and step >= self.steps
        return step >= self.least and spent_s + step_s / 2 > self.seconds

    def seconds_until(self, share: float, spent_s: float) -> Optional[float]:
        """Return the seconds until `share` of the training time is used, `spent_s` of the run's clock being
        spent; None where steps end the run.
        """
        if self.seconds is None:
            return None
        return self.began_s + share * (self.seconds - self.began_s) - spent_s
