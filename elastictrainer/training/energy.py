"""The energy that this device spends on training, by its own sensor, and the hours of training."""

import contextlib
import math
import threading
import time
from pathlib import Path
from typing import Callable, Iterator, List, NamedTuple, Optional, Protocol, Sequence, Tuple

from elastictrainer.runs.log import LOG
from elastictrainer.training.callbacks import TrainerCallback
from elastictrainer.training.state import Values

# The rail that feeds everything: of Jetson TX2, Xavier NX and Orin; of Nano. AGX Xavier and AGX Orin have
# none: their rails are added up.
TOTAL_RAILS = ("VDD_IN", "POM_5V_IN")
INTERVAL_S = 0.5  # power changes with the steps; a counter of 32 bits in microjoules turns over in minutes


class Sensor(Protocol):
    """Something that tells the joules spent."""

    name: str

    def joules(self) -> float:
        """Return the joules spent since the call before this one."""


class PowerSensor:
    """A sensor of momentary power, integrated between the calls by the trapezoidal rule."""

    def __init__(self, name: str, watts: Callable[[], float], clock: Callable[[], float] = time.monotonic):
        self.name = name
        self.watts = watts
        self._clock = clock
        self._last = (clock(), watts())

    def joules(self) -> float:
        (before, power_before), self._last = self._last, (self._clock(), self.watts())
        after, power_after = self._last
        return (after - before) * (power_before + power_after) / 2


class CounterSensor:
    """Energy counters in microjoules (x86 RAPL), each of which starts again from zero above its range."""

    def __init__(self, name: str, counters: Sequence[Path], ranges: Sequence[int]):
        self.name = name
        self._counters, self._ranges = counters, ranges
        self._last = [_number(path) for path in counters]

    def joules(self) -> float:
        before, self._last = self._last, [_number(path) for path in self._counters]
        spent = zip(before, self._last, self._ranges)
        return sum(new - old + (top if new < old else 0) for old, new, top in spent) / 1e6


def find_sensor(sys: Path = Path("/sys")) -> Tuple[Optional[Sensor], str]:
    """Find this device's sensor, and its name; None and the reason where there is none that can be read.

    Looks for the INA3221 of Jetson boards (JetPack 4: `iio:device*`, mW; JetPack 5 and later: `hwmon`, mV and
    mA), then for the packages of x86 RAPL.
    """
    try:
        rails = _jetson_rails(sys)
        if rails:
            name = "INA3221 " + ", ".join(rail.label for rail in rails)
            return PowerSensor(name, lambda: sum(rail.watts() for rail in rails)), name
        zones = sorted(z for z in (sys / "class/powercap").glob("intel-rapl:*") if z.name.count(":") == 1)
        packages = [z for z in zones if _text(z / "name").startswith("package")]
        if packages:
            sensor = CounterSensor(
                "RAPL " + ", ".join(_text(z / "name") for z in packages),
                [z / "energy_uj" for z in packages],
                [_number(z / "max_energy_range_uj") for z in packages],
            )
            return sensor, sensor.name
    except PermissionError as error:
        return None, f"{error.filename} can be read by root only (sudo chmod a+r {error.filename})"
    except (OSError, ValueError) as error:
        return None, f"the power sensor cannot be read: {error}"
    return None, "this device has no power sensor that is known here"


class _Rail(NamedTuple):
    """A rail of a Jetson board; `factors` of its power in thousandths: watts, or volts and amperes."""

    label: str
    factors: List[Path]

    def watts(self) -> float:
        return math.prod(_number(path) / 1e3 for path in self.factors)


def _jetson_rails(sys: Path) -> List[_Rail]:
    """Return the rails to add up: the total rail where there is one, else all of them."""
    rails = []
    for label in sorted(sys.glob("bus/i2c/drivers/ina3221x/*/iio:device*/rail_name_*")):
        power = label.with_name(f"in_power{label.name[len('rail_name_') :]}_input")
        if power.exists():
            rails.append(_Rail(_text(label), [power]))
    for label in sorted(sys.glob("bus/i2c/drivers/ina3221/*/hwmon/hwmon*/in*_label")):
        number = label.name[len("in") : -len("_label")]
        volts, amperes = label.with_name(f"in{number}_input"), label.with_name(f"curr{number}_input")
        if volts.exists() and amperes.exists():
            rails.append(_Rail(_text(label), [volts, amperes]))
    return [rail for rail in rails if rail.label in TOTAL_RAILS] or rails


def _text(path: Path) -> str:
    return path.read_text().strip()


def _number(path: Path) -> int:
    return int(_text(path))


class EnergyMetering(TrainerCallback):
    """Meters the energy of training, in joules, with a sensor, and notes when training went on."""

    def __init__(self, sensor: Optional[Sensor] = None, interval_s: float = INTERVAL_S) -> None:
        """
        Args:
            sensor: the first of what `find_sensor` gives; None: only times are noted, for an external
                meter's log.
            interval_s: between two readings in the background.
        """
        super().__init__()
        self._sensor, self._interval_s = sensor, interval_s
        self._joules = 0.0
        self._intervals: List[List[float]] = []  # [begin, end] of training, in Unix time
        self._training = False
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def fit_context(self) -> Iterator[None]:
        stop = threading.Event()
        thread = threading.Thread(target=self._read_regularly, args=(stop,), name="energy", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._switch(False)
            stop.set()
            thread.join()

    def on_steps_begin(self) -> None:
        now = time.time()
        self._intervals.append([now, now])
        self._switch(True)

    def on_steps_end(self) -> None:
        self._switch(False)

    def _switch(self, training: bool) -> None:
        """Add what was spent so far; what is spent from here on counts if `training`."""
        with self._lock:
            if self._training:
                self._intervals[-1][1] = time.time()
            self._read()
            self._training = training

    def _read_regularly(self, stop: threading.Event) -> None:
        while not stop.wait(self._interval_s):
            with self._lock:
                self._read()

    def _read(self) -> None:
        if self._sensor is None:
            return
        try:
            spent = self._sensor.joules()
        except (OSError, ValueError) as error:  # of a busy bus, say: no reason to lose the training
            LOG.info(
                f"note: the energy is not known, for {self._sensor.name} cannot be read any more: {error}"
            )
            self._sensor = None
            return
        if self._training:  # what was spent before is left out
            self._joules += spent

    def before_checkpoint(self) -> None:
        self._switch(self._training)

    def state(self) -> Values:
        return {"joules": self._joules if self._sensor else None, "intervals": self._intervals}

    def restore(self, state: Optional[Values]) -> None:
        if state is None:
            return
        self._intervals = state["intervals"]
        if state["joules"] is None:
            self._sensor = None  # the energy of a part is not that of the training
        else:
            self._joules = state["joules"]

    def conclude(self) -> Values:
        return {
            "energy_joules": self._joules if self._sensor else None,
            "energy_source": self._sensor.name if self._sensor else None,
            "training_intervals": self._intervals,
        }
