"""What is left for the end of a run with --time."""

from types import SimpleNamespace

import pytest

from elastictrainer.experiment.ending import deadline
from elastictrainer.experiment.settings import TrainSettings


def case(validation=False, more=None, **settings):
    """The deadline of a run with 100 test images and perhaps 50 to validate, and what it has measured."""
    evaluation, record = SimpleNamespace(image_s=0.0), SimpleNamespace(writing_s=0.0)
    counts = {"test": 100, "val": 50}
    data = SimpleNamespace(val_split=counts if validation else None, evaluated_count=counts.get)
    settings = TrainSettings(**{"time": "60s", **settings})
    return deadline(settings, data, evaluation, record, 0.05, 4, more), evaluation, record


def test_what_the_run_has_measured_takes_the_place_of_what_was_expected():
    found, evaluation, record = case()
    expected_s = found.reserve_s()
    evaluation.image_s = 0.02
    assert expected_s - found.reserve_s() == pytest.approx(100 * (0.05 - 0.02))
    writing_s = found.reserve_s()
    record.writing_s = 10.0
    assert found.reserve_s() > writing_s + 15, "a checkpoint and the model"
    assert found.check_s < expected_s, "of a quarter of the images"


def test_validated_weights_are_tested_as_well_and_an_export_takes_time():
    assert case(validation=True)[0].reserve_s() - case()[0].reserve_s() == pytest.approx(50 * 0.05)
    assert case(export="tflite")[0].reserve_s() > case()[0].reserve_s() + 5


def test_no_time_no_deadline_and_a_resumed_run_has_more():
    assert case(time=None)[0] is None
    found = case(more="30s")[0]
    found.resume(100.0)
    assert found.seconds == 130.0
