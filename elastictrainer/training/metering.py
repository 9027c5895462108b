"""The energy and the hours of training, without validation."""

import contextlib
import threading
import time
from typing import Any, Dict, Iterator, List, Optional

from elastictrainer.runs.log import LOG
from elastictrainer.training.callback import TrainerCallback
from elastictrainer.training.energy import Sensor

INTERVAL_S = 0.5  # power changes with the steps; a counter of 32 bits in microjoules turns over in minutes


class EnergyMetering(TrainerCallback):
    """Meters the energy of training, in joules, with a sensor, and notes when training went on."""

    def __init__(self, sensor: Optional[Sensor] = None, interval_s: float = INTERVAL_S) -> None:
        """
        Args:
            sensor: the first of what `energy.find_sensor` gives; None: only times are noted, for an external
                meter's log.
            interval_s: between two readings in the background.
        """
        super().__init__()
        self._sensor, self._interval_s = sensor, interval_s
        self._joules = 0.0
        self._last: Optional[float] = None  # the reading up to which everything is added or left out
        self._intervals: List[List[float]] = []  # [begin, end] of training, in Unix time
        self._training = False
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def fit_context(self) -> Iterator[None]:
        """Read the sensor in the background."""
        stop = threading.Event()
        thread = threading.Thread(target=self._sample, args=(stop,), name="energy", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._switch(False)
            stop.set()
            thread.join()

    def on_steps_begin(self) -> None:
        """Begin an interval of training."""
        now = time.time()
        self._intervals.append([now, now])
        self._switch(True)

    def on_steps_end(self) -> None:
        """End the interval of training."""
        self._switch(False)

    def _switch(self, training: bool) -> None:
        """Add what was spent so far; what is spent from here on counts if `training`."""
        with self._lock:
            if self._training:
                self._intervals[-1][1] = time.time()
            self._read()
            self._training = training

    def _sample(self, stop: threading.Event) -> None:
        while not stop.wait(self._interval_s):
            with self._lock:
                self._read()

    def _read(self) -> None:
        if self._sensor is None:
            return
        try:
            now = self._sensor.joules()
        except (OSError, ValueError) as error:  # of a busy bus, say: no reason to lose the training
            LOG.info(
                f"note: the energy is not known, for {self._sensor.name} cannot be read any more: {error}"
            )
            self._sensor = None
            return
        if self._training and self._last is not None:
            self._joules += now - self._last
        self._last = now

    def state(self) -> Dict[str, Any]:
        """Return the state that a checkpoint keeps."""
        self._switch(self._training)
        return {"joules": self._joules if self._sensor else None, "intervals": self._intervals}

    def restore(self, state: Optional[Dict[str, Any]]) -> None:
        """Continue from the state that a checkpoint kept."""
        if state is None:
            return
        self._intervals = state["intervals"]
        if state["joules"] is None:
            self._sensor = None  # the energy of a part is not that of the training
        else:
            self._joules = state["joules"]

    def conclude(self) -> Dict[str, Any]:
        """Return the energy, its source and the intervals of training."""
        return {
            "energy_joules": self._joules if self._sensor else None,
            "energy_source": self._sensor.name if self._sensor else None,
            "training_intervals": self._intervals,
        }
