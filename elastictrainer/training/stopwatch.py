"""Where the time of a run goes."""

import contextlib
import time
from collections import defaultdict
from typing import Callable, Dict, Iterator, List

# The laps of a run.
STEPS = "steps"  # training steps whose graph was there
FULL_TRACING = "full_tracing"  # building the graph of the full step, its first run included
TRACING = "tracing"  # building the graph of a selection, its first run included
IMPORTANCE = "importance"  # scoring the tensors
SELECTION = "selection"  # choosing among them
PROFILING = "profiling"  # renewing the profile
LOOP = "loop"  # around the steps: waiting for the first minibatch of an epoch, the progress shown
CHECKPOINT = "checkpoint"
VALIDATION = "validation"
CALIBRATION = "calibration"  # full steps measured apart for comparison

SELECTING = (IMPORTANCE, SELECTION, TRACING, PROFILING)  # what full training does not do
RECURRING = (LOOP, CHECKPOINT)  # beside the steps, whatever trains
SHARED = (*RECURRING, FULL_TRACING)  # what full training takes as well, beside its steps
NOT_TRAINING = (VALIDATION, CALIBRATION)


class Stopwatch:
    """Exclusive wall-clock seconds by lap; a lap inside a lap pauses the outer one."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter):
        self.seconds: Dict[str, float] = defaultdict(float)
        self._clock = clock
        self._open: List[str] = []
        self._since = 0.0

    def _charge(self) -> None:
        now = self._clock()
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

    def so_far(self) -> Dict[str, float]:
        """Seconds by lap, the open lap up to now included."""
        self._charge()
        return dict(self.seconds)

    def total(self, *without: str) -> float:
        """Seconds of all laps but `without`, the open lap up to now included."""
        self._charge()
        return sum(s for name, s in self.seconds.items() if name not in without)

    def of(self, *names: str) -> float:
        """Seconds of these laps, the open lap up to now included."""
        self._charge()
        return sum(self.seconds[name] for name in names)

    def training(self) -> float:
        """Seconds of training: all but validation and calibration."""
        return self.total(*NOT_TRAINING)
