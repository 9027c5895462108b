"""The stopwatch of a run."""

import contextlib
import time
from collections import defaultdict
from typing import Callable, Dict, Iterator, List

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
