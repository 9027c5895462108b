"""The energy and the hours of training, and the sensors that tell it."""

import time

import pytest

from builders import ArrayData, small_network, train_classifier
from elastictrainer.training.energy import EnergyMetering, PowerSensor, find_sensor
from log_lines import listen


def write(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        (folder / name).write_text(f"{value}\n")


JETPACK_4 = "bus/i2c/drivers/ina3221x/0-0041/iio:device1"
JETPACK_5 = "bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon3"


@pytest.mark.parametrize(
    "device, rails, name, watts",
    [
        (JETPACK_4, {"VDD_IN": 7500, "VDD_GPU": 2000}, "VDD_IN", 7.5),
        (JETPACK_5, {"VDD_IN": (5000, 1200), "VDD_CPU_GPU_CV": (5000, 400)}, "VDD_IN", 6.0),
        (JETPACK_5, {"GPU": (19000, 100), "CPU_CV": (19000, 50)}, "GPU, CPU_CV", 2.85),
    ],
    ids=["JetPack 4: milliwatts", "JetPack 5: volts times amperes", "without a total rail all are added up"],
)
def test_a_jetson_tells_the_power_of_its_rails(tmp_path, device, rails, name, watts):
    for k, (label, value) in enumerate(rails.items(), 1):
        files = {f"rail_name_{k}": label, f"in_power{k}_input": value}
        if device == JETPACK_5:
            files = dict(zip((f"in{k}_input", f"curr{k}_input"), value)) | {f"in{k}_label": label}
        write(tmp_path / device, **files)
    sensor, found = find_sensor(tmp_path)
    assert found == f"INA3221 {name}" and sensor.watts() == pytest.approx(watts)


def test_power_is_integrated_by_trapezoids():
    now, watts = [0.0], [10.0]
    sensor = PowerSensor("fake", lambda: watts[0], lambda: now[0])
    now[0], watts[0] = 2.0, 20.0
    assert sensor.joules() == pytest.approx(30)
    now[0] = 3.0
    assert sensor.joules() == pytest.approx(20)


def test_rapl_adds_packages_and_survives_the_wrap(tmp_path):
    zone = "class/powercap/intel-rapl:"
    for number, name in {"0": "package-0", "0:0": "core", "1": "package-1", "2": "psys"}.items():
        write(tmp_path / f"{zone}{number}", name=name, energy_uj=900_000, max_energy_range_uj=1_000_000)
    sensor, name = find_sensor(tmp_path)
    assert name == "RAPL package-0, package-1"
    for number, energy in {"0": 950_000, "1": 100_000, "0:0": 999_999}.items():  # one began again at zero
        write(tmp_path / f"{zone}{number}", energy_uj=energy)
    assert sensor.joules() == pytest.approx(0.05 + 0.2)


def test_without_a_sensor_that_can_be_read_the_reason_is_said(tmp_path, monkeypatch):
    assert find_sensor(tmp_path) == (None, "this device has no power sensor that is known here")
    zone = tmp_path / "class/powercap/intel-rapl:0"
    write(zone, name="package-0", energy_uj="garbage", max_energy_range_uj=5)
    assert find_sensor(tmp_path)[0] is None and "cannot be read" in find_sensor(tmp_path)[1]
    read = type(zone).read_text

    def guarded(self, *arguments, **options):
        if self.name == "energy_uj":
            raise PermissionError(13, "Permission denied", str(self))
        return read(self, *arguments, **options)

    monkeypatch.setattr(type(zone), "read_text", guarded)
    sensor, reason = find_sensor(tmp_path)
    assert sensor is None and "root" in reason and "energy_uj" in reason


NEVER = 1e6  # seconds between two readings in the background


class Growing:
    """A hundred joules at every reading."""

    name = "fake"

    def __init__(self):
        self.readings = 0

    def joules(self):
        self.readings += 1
        return 100.0


def metered(sensor=None, epochs=1, resumed_from=None):
    """Train so many epochs; returns the metering and its figures."""
    metering = EnergyMetering(sensor, NEVER)
    metering.restore(resumed_from)
    with metering.fit_context():
        for _ in range(epochs):
            metering.on_steps_begin()
            metering.on_steps_end()
    return metering, metering.conclude()


def test_what_is_spent_while_training_goes_on_is_counted():
    _, results = metered(Growing(), 2)
    assert results["energy_joules"] == 200 and results["energy_source"] == "fake"
    (first, second), (third, fourth) = results["training_intervals"]
    assert first <= second <= third <= fourth


def test_a_checkpoint_holds_what_was_spent_up_to_it():
    metering = EnergyMetering(Growing(), NEVER)
    with metering.fit_context():
        metering.on_steps_begin()
        metering.before_checkpoint()
        saved = metering.state()
        assert metering.state() == saved, "asking changes nothing"
        assert saved["joules"] == 100 and len(saved["intervals"]) == 1
    resumed, results = metered(Growing(), resumed_from=saved)
    assert results["energy_joules"] == 200 and len(results["training_intervals"]) == 2
    resumed.restore(None)
    assert resumed.conclude() == results, "nothing to go on from, nothing changed"


def test_the_sensor_is_read_in_the_background():
    metering = EnergyMetering(Growing(), 0.01)
    with metering.fit_context():
        metering.on_steps_begin()
        deadline = time.monotonic() + 100
        while metering.conclude()["energy_joules"] < 500 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert metering.conclude()["energy_joules"] >= 500


def test_without_a_sensor_only_hours_are_noted():
    _, results = metered()
    assert results["energy_joules"] is results["energy_source"] is None
    assert len(results["training_intervals"]) == 1


def test_a_sensor_that_fails_ends_the_measurement_and_not_the_training():
    class Failing(Growing):
        def joules(self):
            if self.readings == 2:
                raise OSError(110, "Connection timed out")
            return super().joules()

    said = listen()
    metering, results = metered(Failing(), 2)
    assert results["energy_joules"] is results["energy_source"] is None
    assert len(results["training_intervals"]) == 2 and len(said) == 1 and "timed out" in said[0]
    _, results = metered(Growing(), resumed_from=metering.state())
    assert results["energy_joules"] is None, "a part of it is not known"


def test_in_a_run_validation_is_left_out(tf):
    sensor, data = Growing(), ArrayData(tf, steps=3)
    summary = train_classifier(
        tf, small_network(tf), data, scheme="full", epochs=2, metering=EnergyMetering(sensor, NEVER)
    ).elastic
    # Each epoch begins and ends with a reading, and a hundred joules lie between two.
    assert summary["energy_joules"] == 200 and summary["energy_source"] == "fake"
    trained = sum(end - begin for begin, end in summary["training_intervals"])
    before = summary["seconds"]["building"]  # the first epoch
    assert len(summary["training_intervals"]) == 2
    assert trained == pytest.approx(summary["train_seconds"] - before, abs=0.1)
