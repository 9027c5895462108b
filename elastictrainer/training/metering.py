"""The energy and the hours of training, without validation."""

import time
from typing import Any, ContextManager, Dict, List, Optional

from elastictrainer.training.callback import TrainerCallback
from elastictrainer.training.energy import INTERVAL_S, EnergyMeter, Sensor


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
        self._sensor = sensor
        self._meter = EnergyMeter(sensor, interval_s)
        self._intervals: List[List[float]] = []  # [begin, end] of training, in Unix time
        self._training = False

    def fit_context(self) -> ContextManager[Any]:
        """Read the sensor in the background."""
        return self._meter

    def on_steps_begin(self) -> None:
        """Begin an interval of training."""
        now = time.time()
        self._intervals.append([now, now])
        self._training = True
        self._meter.run(True)

    def on_steps_end(self) -> None:
        """End the interval of training."""
        self._extend()
        self._training = False
        self._meter.run(False)

    def _extend(self) -> None:
        if self._training:
            self._intervals[-1][1] = time.time()

    def state(self) -> Dict[str, Any]:
        """Return the state that a checkpoint keeps."""
        self._extend()
        self._meter.run(self._training)  # counts what was spent so far
        return {"joules": self._meter.joules, "intervals": self._intervals}

    def restore(self, state: Optional[Dict[str, Any]]) -> None:
        """Continue from the state that a checkpoint kept."""
        if state is not None:
            self._meter.joules, self._intervals = state["joules"], state["intervals"]

    def results(self) -> Dict[str, Any]:
        """Return the energy, its source and the intervals of training."""
        return {
            "energy_joules": self._meter.joules if self._sensor else None,
            "energy_source": self._sensor.name if self._sensor else None,
            "training_intervals": self._intervals,
        }
