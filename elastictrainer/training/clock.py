"""The clock of a run: its budget, in steps or in seconds, and what is spent of it, on what. No TensorFlow."""

import contextlib
import time
from collections import defaultdict, deque
from dataclasses import asdict, dataclass
from typing import Any, Callable, Deque, Dict, Iterator, List, Optional

import numpy as np
import psutil

from elastictrainer.training.planner import Stage

# What a stopwatch charges time to.
STEPS = "steps"  # training steps whose graph was there
BUILDING = "building"  # making the variables of model, optimizer and metrics, before the first step
FULL_TRACING = "full_tracing"  # building the graph of the full step, its first run included
TRACING = "tracing"  # building the graph of a selection, its first run included
IMPORTANCE = "importance"  # scoring the tensors
TIMING = "timing"  # full steps that leave no trace, which tell what full training would take
SELECTION = "selection"  # choosing among the tensors
HEAD = "head"  # features of the images, and solving the last layer on them
LOOP = "loop"  # around the steps: waiting for the first minibatch of an epoch, the progress shown
CHECKPOINT = "checkpoint"
VALIDATION = "validation"
CALIBRATION = "calibration"  # the first profile, and full steps for comparison, which are not part of the run
SUSPENDED = "suspended"  # what a step took beyond ten typical ones: the machine slept, or was stopped

SHARED = (LOOP, CHECKPOINT, BUILDING, FULL_TRACING)  # full training takes it as well, besides its steps
NOT_TRAINING = (VALIDATION, CALIBRATION, SUSPENDED)

_MOST_OF_BUDGET = 0.5  # that is left, for a pass over the images: the rest is for training on its result
# Of the time that a deadline leaves after loading, at most: for evaluation; for that of the solved head.
_EVALUATION, _HEAD_EVALUATION = 0.2, 0.03
# A step that takes longer than so many times the median of the latest ones was not training all the time.
_ASLEEP_AFTER, _LATEST = 10, 100
_KNOWN = 20  # steps whose median is worth something


def _now_s() -> float:
    """Return seconds that only grow; on Linux those in which the machine slept count, too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


# Asked for once: the system's time may be set during the run.
_STARTED_S = _now_s() - max(0.0, time.time() - psutil.Process().create_time())


def process_age_s() -> float:
    """Return the seconds since this process started."""
    return _now_s() - _STARTED_S


class Stopwatch:
    """Exclusive wall-clock seconds by lap, as `clock` tells them; a lap inside a lap pauses the outer one."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter):
        self.seconds: Dict[str, float] = defaultdict(float)
        self.clock = clock
        self._open: List[str] = []
        self._since = 0.0

    def _charge(self) -> None:
        now = self.clock()
        if self._open:
            self.seconds[self._open[-1]] += now - self._since
        self._since = now

    @contextlib.contextmanager
    def lap(self, name: str) -> Iterator[None]:
        """Charge the block to `name`."""
        self._charge()
        self._open.append(name)
        try:
            yield
        finally:
            self._charge()
            self._open.pop()

    def move(self, seconds: float, source: str, target: str) -> None:
        """Charge `seconds` of the lap `source` to the lap `target`."""
        self._charge()
        self.seconds[source] -= seconds
        self.seconds[target] += seconds

    def so_far(self) -> Dict[str, float]:
        """Return seconds by lap, the open lap up to now included."""
        self._charge()
        return dict(self.seconds)

    def total(self, *without: str) -> float:
        """Return seconds of all laps but `without`, the open lap up to now included."""
        self._charge()
        return sum(s for name, s in self.seconds.items() if name not in without)

    def of(self, *names: str) -> float:
        """Return seconds of these laps, the open lap up to now included."""
        self._charge()
        return sum(self.seconds[name] for name in names)

    def training(self) -> float:
        """Return the seconds of training, which `rho_achieved` counts: all laps but `NOT_TRAINING`."""
        return self.total(*NOT_TRAINING)


@dataclass(frozen=True)
class Deadline:
    """The wall-clock time that a whole process may take.

    Attributes:
        seconds: from its start to its end.
        reserve_s: tells what comes after the last step, such as writing the model, and exports.
        more_s: time for an earlier run beyond the time it had taken; 0: the rest of `seconds`.
        age_s: seconds since the process started.
        images: to evaluate after the last step, as many as there is time for; 0: `reserve_s` counts them.
        image_s: expected for evaluating one; None: not known.
    """

    seconds: float
    reserve_s: Callable[[], float] = lambda: 0.0
    more_s: float = 0.0
    age_s: Callable[[], float] = process_age_s
    images: int = 0
    image_s: Optional[float] = None


class Clock:
    """The budget of a run, in steps or in seconds, and what is spent of it.

    A run that is given steps ends after them. A run that is given seconds ends when its clock has counted
    them, however long a step takes then: nothing has to be predicted for the promise to be kept.

    Attributes:
        epochs: of the whole run; of a run by the clock, those of the full training that rho refers to.
        steps_per_epoch: minibatches in an epoch.
        deadline: of the process; None: training time counts.
        watch: time by lap.
        budget_s: seconds of training; None: steps or the deadline end the run.
        began_s: seconds of the clock before the first step. The learning rate falls from there on.
        stage: the one going on, or the one to begin; None before the first is planned.
        stage_begun: whether `stage` goes on.
        image_s: seconds that evaluating an image takes; None: not known yet.
    """

    def __init__(
        self,
        epochs: int = 1,
        steps_per_epoch: int = 1,
        deadline: Optional[Deadline] = None,
        watch: Optional[Stopwatch] = None,
    ):
        """The arguments are attributes; `watch`: None: a new one."""
        self.epochs, self.steps_per_epoch, self.deadline = epochs, steps_per_epoch, deadline
        self.watch = Stopwatch() if watch is None else watch
        self.budget_s: Optional[float] = None
        self.began_s = 0.0
        self.stage: Optional[Stage] = None
        self.stage_begun = False
        self.image_s = deadline.image_s if deadline else None
        # What a deadline leaves after the start of the process, which may take most of a short one.
        self._given_s = (deadline.more_s or deadline.seconds) - deadline.age_s() if deadline else 0.0
        self._total_s = deadline.seconds + deadline.more_s if deadline else 0.0
        self._before_s = 0.0  # what an interrupted run had taken
        self._lost_s = 0.0  # in which the machine slept: they count for nothing
        self._like: Any = None  # what the latest steps have in common
        self._latest: Deque[float] = deque(maxlen=_LATEST)  # their times, ms

    @property
    def by_clock(self) -> bool:
        """Return whether seconds end the run, not a number of steps."""
        return self.deadline is not None or self.budget_s is not None

    @property
    def end_s(self) -> Optional[float]:
        """Return when the last step must be done, by `spent_s`; None: steps end the run."""
        if self.deadline is None:
            return self.budget_s
        return self._total_s - self.ending_s

    @property
    def ending_s(self) -> float:
        """Return the seconds that are kept for what comes after the last step."""
        if self.deadline is None:
            return 0.0
        evaluation_s, most_s = self.deadline.images * (self.image_s or 0.0), _EVALUATION * self._given_s
        # Where all images do not fit a sample tells enough in half of it: the rest is worth more as training.
        return self.deadline.reserve_s() + (evaluation_s if evaluation_s <= most_s else most_s / 2)

    def evaluation_s(self, ending: bool, of_head: bool = False) -> float:
        """Return the seconds that an evaluation may take now, as all that are asked for a deadline together.

        `ending`: nothing but evaluation follows, which has all the time there is; `of_head`: of the solved
        head, which tells little that the end does not.
        """
        if self.deadline is None:
            return np.inf
        left_s = self._total_s - self.spent_s() - self.deadline.reserve_s()
        return (
            left_s if ending else min(left_s, (_HEAD_EVALUATION if of_head else _EVALUATION) * self._given_s)
        )

    def spent_s(self) -> float:
        """Return the seconds that count so far: of training, or with a deadline all."""
        if self.deadline is None:
            return self.watch.training()
        return self._before_s + self.deadline.age_s() - self._lost_s

    def left_s(self) -> Optional[float]:
        """Return the seconds until the last step must be done; None where steps end the run."""
        end_s = self.end_s
        return None if end_s is None else end_s - self.spent_s()

    def share(self, step: int) -> float:
        """Return the share of the budget that is used after `step` steps, 0 to 1."""
        end_s = self.end_s
        if end_s is None:
            return min(1.0, step / (self.epochs * self.steps_per_epoch))
        left_s = end_s - self.began_s
        by_time = (self.spent_s() - self.began_s) / left_s if left_s > 0 else 1.0
        # While the least number of steps is not done, they have to be spread over the learning rate, too.
        return min(1.0, max(0.0, by_time if step >= self._least else min(by_time, step / self._least)))

    def ends(self, step: int, step_s: float) -> bool:
        """Return whether a run by the clock ends after `step` steps: half of another one, of `step_s`
        seconds, would be beyond the budget.
        """
        end_s = self.end_s
        return end_s is not None and step >= self._least and self.spent_s() + step_s / 2 > end_s

    @property
    def _least(self) -> int:
        """Return the steps that a run of seconds makes in any case, although it then takes longer."""
        return self.steps_per_epoch if self.deadline is None else 1

    def pass_ends_s(self, solving_s: Optional[float] = None) -> float:
        """Return when, by `spent_s`, a pass over the images has to end that goes on now.

        A deadline cuts it short. A share of full training's time does not: a head that was solved on a part
        of the images is worth less than the time that is kept.

        `solving_s`: the pass is for a head, which then takes so long to be solved: it has all other time.
        None: half of it is for training.
        """
        if self.deadline is None:
            return np.inf
        now_s, left_s = self.spent_s(), max(0.0, self.left_s() or 0.0)
        return now_s + (_MOST_OF_BUDGET * left_s if solving_s is None else left_s - solving_s)

    def counted_ms(self, ms: float, lap: str, like: Any) -> float:
        """Note how long a step took; return that without what the machine slept during it.

        Args:
            ms: of the step.
            lap: that it was charged to.
            like: equal for steps that take about as long.
        """
        if like != self._like:
            self._like = like
            self._latest.clear()
        usual_ms = float(np.median(self._latest)) if len(self._latest) >= _KNOWN else np.inf
        self._latest.append(ms)  # as it is: a device that stays slow is soon believed
        if ms > _ASLEEP_AFTER * usual_ms:
            # A machine that slept must not lose its budget: the surplus is neither training nor time used.
            self.watch.move(1e-3 * (ms - usual_ms), lap, SUSPENDED)
            self._lost_s += 1e-3 * (ms - usual_ms)
            ms = usual_ms
        return ms

    def state(self) -> Dict[str, Any]:
        """Return the state that `restore` needs, as JSON values."""
        return {
            "laps": self.watch.so_far(),
            "spent_s": self.spent_s(),
            "budget_s": self.budget_s,
            "began_s": self.began_s,
            "stage": self.stage and asdict(self.stage),
            "stage_begun": self.stage_begun,
            "total_s": self._total_s,
        }

    def restore(self, state: Dict[str, Any]) -> None:
        """Go on from `state`."""
        self.watch.seconds.update(state["laps"])
        self.budget_s, self.began_s, self._before_s = state["budget_s"], state["began_s"], state["spent_s"]
        # A run that was given more time, and interrupted then, has that time still.
        more_s = self.deadline.more_s if self.deadline else 0.0
        self._total_s = self._before_s + more_s if more_s else state["total_s"]
        self.stage = state["stage"] and Stage(**state["stage"])
        self.stage_begun = state["stage_begun"]
