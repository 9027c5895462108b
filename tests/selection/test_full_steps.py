"""Full steps, and the response of the measured ratio to the predicted one. No TensorFlow."""

import pytest

from elastictrainer.selection.full_steps import FullSteps, typical_ms
from elastictrainer.selection.policy import RECORDING, REPLAY
from elastictrainer.selection.response import ResponseOfSaving, ResponseOfTime


def test_a_step_that_was_held_up_counts_as_three_at_most():
    assert typical_ms([10.0, 10.0, 10.0, 14.0]) == 11.0
    assert typical_ms([10.0, 10.0, 10.0, 5000.0]) == 15.0


def test_a_burst_that_has_only_begun_says_nothing():
    full = FullSteps()
    full.begin(0)
    assert full.now_ms() is None and full.training_ms(10) is None
    full.add(100.0)
    full.begin(10)
    assert full.now_ms() == 100.0 and full.training_ms(10) == 1000.0


def test_between_two_bursts_the_pace_changes_evenly():
    full = FullSteps()
    full.begin(0, [100.0, 100.0])
    full.begin(100, [200.0, 200.0])
    assert full.now_ms() == 200.0
    assert full.training_ms(100) == pytest.approx(sum(100 + max(0, step - 1.5) for step in range(100)))


def test_a_prediction_that_the_clock_confirms_is_asked_for_as_it_is():
    for response in (ResponseOfSaving(), ResponseOfTime()):
        assert response.prediction_for(0.4) == pytest.approx(0.4)
        assert response.learn(REPLAY, 0.4, 0.4) == pytest.approx(0.4)
        assert response.value == pytest.approx(1.0) and response.prediction_for(0.3) == pytest.approx(0.3)


def test_half_the_predicted_saving_asks_for_twice_as_much():
    response = ResponseOfSaving()
    response.learn(REPLAY, 0.4, 0.7)
    assert response.prediction_for(0.8) == pytest.approx(0.6)


def test_steps_that_take_longer_are_asked_to_be_shorter_and_recording_ones_say_nothing_of_others():
    response = ResponseOfTime()
    response.learn(RECORDING, 0.5, 0.75)
    assert response.prediction_for(0.3) == pytest.approx(0.3)
    assert response.learn(REPLAY, 0.2, 0.25) == pytest.approx(0.25)
    assert response.prediction_for(0.3) == pytest.approx(0.24)
    assert response.learn(REPLAY, 0.2, 0.2) == pytest.approx(0.225)  # the mean of two
