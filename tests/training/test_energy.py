"""Energy from fake sysfs trees in the layouts of real ones."""

import pytest

from elastictrainer.training.energy import CounterSensor, PowerSensor, find_sensor


def write(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        (folder / name).write_text(f"{value}\n")


def test_jetpack_4_takes_the_total_rail_in_milliwatts(tmp_path):
    device = tmp_path / "bus/i2c/drivers/ina3221x/0-0041/iio:device1"
    write(device, rail_name_0="VDD_IN", in_power0_input=7500, rail_name_1="VDD_SYS_GPU", in_power1_input=2000)
    sensor, name = find_sensor(tmp_path)
    assert name == "INA3221 VDD_IN" and sensor.watts() == 7.5


def test_jetpack_5_multiplies_volts_and_amperes(tmp_path):
    device = tmp_path / "bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon3"
    write(
        device,
        in1_label="VDD_IN",
        in1_input=5000,
        curr1_input=1200,
        in2_label="VDD_CPU_GPU_CV",
        in2_input=5000,
        curr2_input=400,
    )
    sensor, name = find_sensor(tmp_path)
    assert name == "INA3221 VDD_IN" and sensor.watts() == pytest.approx(6.0)


def test_boards_without_a_total_rail_add_theirs_up(tmp_path):
    device = tmp_path / "bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon3"
    write(
        device,
        in1_label="VDD_GPU_SOC",
        in1_input=19000,
        curr1_input=100,
        in2_label="VDD_CPU_CV",
        in2_input=19000,
        curr2_input=50,
    )
    assert find_sensor(tmp_path)[0].watts() == pytest.approx(2.85)


def test_power_is_integrated_by_trapezoids():
    now, watts = [0.0], [10.0]
    sensor = PowerSensor("fake", lambda: watts[0], lambda: now[0])
    now[0], watts[0] = 2.0, 20.0
    assert sensor.joules() == pytest.approx(30)
    now[0] = 3.0
    assert sensor.joules() == pytest.approx(50)


def test_rapl_adds_packages_and_survives_the_wrap(tmp_path):
    for number, name in {"0": "package-0", "0:0": "core", "1": "package-1", "2": "psys"}.items():
        write(
            tmp_path / f"class/powercap/intel-rapl:{number}",
            name=name,
            energy_uj=900_000,
            max_energy_range_uj=1_000_000,
        )
    sensor, name = find_sensor(tmp_path)
    assert name == "RAPL package-0, package-1" and isinstance(sensor, CounterSensor)
    write(tmp_path / "class/powercap/intel-rapl:0", energy_uj=950_000)
    write(tmp_path / "class/powercap/intel-rapl:1", energy_uj=100_000)  # started again from zero
    write(tmp_path / "class/powercap/intel-rapl:0:0", energy_uj=999_999)
    assert sensor.joules() == pytest.approx(0.05 + 0.2)


def test_without_a_sensor_the_reason_is_said(tmp_path):
    assert find_sensor(tmp_path) == (None, "this device has no power sensor that is known here")
    write(
        tmp_path / "class/powercap/intel-rapl:0", name="package-0", energy_uj="garbage", max_energy_range_uj=5
    )
    assert find_sensor(tmp_path)[0] is None and "cannot be read" in find_sensor(tmp_path)[1]


def test_a_counter_that_only_root_may_read_is_said(tmp_path, monkeypatch):
    zone = tmp_path / "class/powercap/intel-rapl:0"
    write(zone, name="package-0", energy_uj=1, max_energy_range_uj=5)
    read = type(zone).read_text

    def guarded(self, *arguments, **options):
        if self.name == "energy_uj":
            raise PermissionError(13, "Permission denied", str(self))
        return read(self, *arguments, **options)

    monkeypatch.setattr(type(zone), "read_text", guarded)
    sensor, reason = find_sensor(tmp_path)
    assert sensor is None and "root" in reason and "energy_uj" in reason
