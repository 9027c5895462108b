import numpy as np
import pytest

from elastictrainer import TensorTimings
from elastictrainer.pace import Pace


def chain(n=50):
    return TensorTimings.from_chain(list(map(str, range(n))), 30.0, np.ones(n), np.ones(n) * 0.4)


def simulate(rho, slope, constant, epochs=12, steps_per_epoch=700, selecting_s=4.0):
    """A run on a device where a step takes slope x profile + constant; returns the ratio it achieves."""
    timings = chain()
    pace = Pace(rho, timings, epochs, steps_per_epoch, interval=4)
    spent = 0.0
    predicted = timings.full_ms
    for step in range(epochs * steps_per_epoch):
        if pace.selection_due(step):
            asked = pace.rho_for_selector(step, spent)
            predicted = asked * timings.full_ms  # a selection that spends all it is given
            pace.new_selection(predicted)
            spent += selecting_s
        full = pace.full_step_due(step)
        ms = slope * (timings.full_ms if full else predicted) + constant
        pace.record(ms, full)
        spent += ms / 1e3
    return spent / step / (slope * timings.full_ms + constant) * 1e3


@pytest.mark.parametrize("rho", [0.4, 0.5, 0.7])
@pytest.mark.parametrize("slope, constant", [(1.0, 0.0), (1.0, 12.0), (1.3, 5.0), (0.8, 0.0)])
def test_the_requested_ratio_is_kept_on_a_device_unlike_the_profiled_one(rho, slope, constant):
    assert simulate(rho, slope, constant) == pytest.approx(rho, abs=0.02)


def test_selections_come_early_then_after_half_an_interval_then_at_every_interval_but_not_at_the_end():
    pace = Pace(0.5, chain(), 12, 1000, interval=4)
    assert pace.selection_steps == [48, 2000, 6000]
    assert [pace.selections_left(step) for step in (0, 48, 49, 6000, 6001)] == [3, 3, 2, 1, 0]


def test_full_steps_open_the_run_precede_every_selection_and_recur():
    pace = Pace(0.5, chain(), 12, 1000, interval=4)
    due = np.array([pace.full_step_due(step) for step in range(12_000)])
    for selection, before in zip(pace.selection_steps, (48, 20, 20)):
        assert due[selection - before : selection].all()
    recurring = due.copy()
    for selection, before in zip(pace.selection_steps, (48, 20, 20)):
        recurring[selection - before : selection] = False
    assert np.flatnonzero(recurring)[:4].tolist() == [297, 298, 299, 597]


def test_a_short_epoch_opens_with_fewer_full_steps():
    assert Pace(0.5, chain(), 3, 20, 1).selection_steps == [5, 20, 40]


def test_the_step_after_a_change_of_graph_does_not_count():
    pace = Pace(0.5, chain(), 1, 100, 1)
    pace.record(500.0, True)
    pace.record(100.0, True)
    pace.record(500.0, False)
    pace.record(50.0, False)
    assert pace.full_ms == [100.0] and pace.chosen_ms == [50.0]


def test_without_a_measured_full_step_the_request_is_handed_on():
    timings = chain()
    assert Pace(0.7, timings, 1, 100, 1).rho_for_selector(0, 0.0) == 0.7
    assert Pace(0.01, timings, 1, 100, 1).rho_for_selector(0, 0.0) == timings.rho_min
