"""Energy and hours of training, without validation."""

import time

import pytest

from builders import ArrayData, small_network, train_classifier
from elastictrainer.training.metering import EnergyMetering
from log_lines import listen

NEVER = 1e6  # seconds between two readings in the background


class Growing:
    """A hundred joules more at every reading."""

    name = "fake"

    def __init__(self):
        self.readings = 0

    def joules(self):
        self.readings += 1
        return 100.0 * self.readings


def train_for_a_while(metering):
    metering.on_steps_begin()
    metering.on_steps_end()


def test_what_is_spent_while_training_goes_on_is_counted():
    metering = EnergyMetering(Growing(), NEVER)
    with metering.fit_context():
        train_for_a_while(metering)
        train_for_a_while(metering)
    results = metering.conclude()
    assert results["energy_joules"] == 200 and results["energy_source"] == "fake"
    (first, second), (third, fourth) = results["training_intervals"]
    assert first <= second <= third <= fourth


def test_a_checkpoint_holds_what_was_spent_up_to_it():
    metering = EnergyMetering(Growing(), NEVER)
    with metering.fit_context():
        metering.on_steps_begin()
        saved = metering.state()
        assert saved["joules"] == 100 and len(saved["intervals"]) == 1
    resumed = EnergyMetering(Growing(), NEVER)
    resumed.restore(saved)
    with resumed.fit_context():
        train_for_a_while(resumed)
    assert resumed.conclude()["energy_joules"] == 200 and len(resumed.conclude()["training_intervals"]) == 2
    resumed.restore(None)
    assert resumed.conclude()["energy_joules"] == 200, "nothing to go on from, nothing changed"


def test_the_sensor_is_read_in_the_background():
    metering = EnergyMetering(Growing(), 0.01)
    with metering.fit_context():
        metering.on_steps_begin()
        deadline = time.monotonic() + 100
        while metering.conclude()["energy_joules"] < 500 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert metering.conclude()["energy_joules"] >= 500


def test_without_a_sensor_only_hours_are_noted():
    metering = EnergyMetering()
    with metering.fit_context():
        train_for_a_while(metering)
    results = metering.conclude()
    assert results["energy_joules"] is results["energy_source"] is None
    assert len(results["training_intervals"]) == 1


def test_a_sensor_that_fails_ends_the_measurement_and_not_the_training():
    class Failing(Growing):
        def joules(self):
            if self.readings == 2:
                raise OSError(110, "Connection timed out")
            return super().joules()

    said = listen()
    metering = EnergyMetering(Failing(), NEVER)
    with metering.fit_context():
        train_for_a_while(metering)
        train_for_a_while(metering)
    results = metering.conclude()
    assert results["energy_joules"] is results["energy_source"] is None
    assert len(results["training_intervals"]) == 2 and len(said) == 1 and "timed out" in said[0]
    resumed = EnergyMetering(Growing(), NEVER)
    resumed.restore(metering.state())
    with resumed.fit_context():
        train_for_a_while(resumed)
    assert resumed.conclude()["energy_joules"] is None, "a part of it is not known"


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
