"""The energy that this device spends, by its own sensor."""

import math
import time
from pathlib import Path
from typing import Callable, List, NamedTuple, Optional, Protocol, Sequence, Tuple

# The rail that feeds everything: of Jetson TX2, Xavier NX and Orin; of Nano. AGX Xavier and AGX Orin have
# none: their rails are added up.
TOTAL_RAILS = ("VDD_IN", "POM_5V_IN")


class Sensor(Protocol):
    """Something that can be asked for the joules spent since some moment in the past."""

    name: str

    def joules(self) -> float:
        """Return a number that grows by the joules spent between two calls."""


class PowerSensor:
    """A sensor of momentary power, integrated between the calls by the trapezoidal rule."""

    def __init__(self, name: str, watts: Callable[[], float], clock: Callable[[], float] = time.monotonic):
        self.name = name
        self.watts = watts
        self._clock = clock
        self._total = 0.0
        self._last = (clock(), watts())

    def joules(self) -> float:
        now = (self._clock(), self.watts())
        (before, power_before), (after, power_after) = self._last, now
        self._total += (after - before) * (power_before + power_after) / 2
        self._last = now
        return self._total


class CounterSensor:
    """Energy counters in microjoules (x86 RAPL), each of which starts again from zero above its range."""

    def __init__(self, name: str, counters: Sequence[Path], ranges: Sequence[int]):
        self.name = name
        self._counters = list(counters)
        self._ranges = list(ranges)
        self._last = [_number(path) for path in self._counters]
        self._total = 0.0

    def joules(self) -> float:
        now = [_number(path) for path in self._counters]
        for before, after, top in zip(self._last, now, self._ranges):
            self._total += ((after - before) if after >= before else (after - before + top)) / 1e6
        self._last = now
        return self._total


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
