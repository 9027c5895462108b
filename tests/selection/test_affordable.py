"""How many selections a run makes that was not told how many."""

import numpy as np
import pytest

from builders import random_timings
from elastictrainer.selection.affordable import affordable, usual_interval
from elastictrainer.selection.schedule import Schedule
from elastictrainer.selection.settings import SelectionSettings

SETTINGS = SelectionSettings(rho=0.5, importance_batches=5)


def profile(graph_steps):
    """A profile whose graphs take as long to build as so many full steps."""
    timings = random_timings(np.random.default_rng(0), 12)
    timings.metadata["graph_ms"] = graph_steps * timings.full_ms
    return timings


@pytest.mark.parametrize("epochs, interval", [(4, 4), (9, 4), (10, 5), (12, 6), (40, 6)])
def test_where_work_is_reused_intervals_are_longer(epochs, interval):
    assert usual_interval(epochs, reuse=True) == interval
    assert usual_interval(epochs, reuse=False) == 4


def test_a_long_run_keeps_its_schedule_and_so_does_a_profile_that_does_not_say_what_a_graph_takes():
    long = Schedule(12, 750, 4)
    assert affordable(long, SETTINGS, profile(20)) is long
    short, silent = Schedule(2, 10, 1), profile(20)
    del silent.metadata["graph_ms"]
    assert affordable(short, SETTINGS, silent) is short


@pytest.mark.parametrize("reuse", [False, True])
def test_a_short_run_makes_the_selections_that_take_a_quarter_of_its_time_at_most(reuse):
    planned = Schedule(12, 100, 1, reuse)
    schedule = affordable(planned, SETTINGS, profile(20))

    def cost(of):  # in full steps; none is timed at the first selection
        made = len(of.selection_steps)
        return 20 + made * (20 + 15) + (made - 1) * (1 + of.TIMED if reuse else 0)

    made = len(schedule.selection_steps)
    assert 1 <= made < len(planned.selection_steps)
    assert made == 1 or cost(schedule) <= 0.25 * 0.5 * 1200
    assert cost(planned.with_interval(schedule.interval - 1)) > 0.25 * 0.5 * 1200


def test_what_is_timed_whether_it_selects_or_not_makes_no_selection_fewer():
    long = Schedule(12, 3000, 6, reuse=True)
    assert long.timed_left(0) > 4 * len(long.selection_steps)
    budget = 20 + 2 * (20 + 15) + 4  # full steps
    rho = 1.01 * budget / (0.25 * long.steps)
    settings = SelectionSettings(rho=rho, importance_batches=5)
    assert len(long.selection_steps) == 2 and affordable(long, settings, profile(20)) is long


def test_where_one_selection_costs_what_it_would_save_every_tensor_trains():
    schedule = affordable(Schedule(8, 44, 4), SETTINGS, profile(100))  # 215 of 352 steps
    assert schedule.interval is None and schedule.selection_steps == []
    assert all(schedule.full_step_due(step) for step in range(352)) and schedule.selected_left(0) == 0
    assert schedule.longest() == 1
    nearly = affordable(Schedule(8, 44, 4), SETTINGS, profile(80))  # 175
    assert len(nearly.selection_steps) == 1


def test_at_rho_one_nothing_is_to_be_saved_and_nothing_is_said_of_it():
    schedule = Schedule(12, 750, 4)
    assert affordable(schedule, SelectionSettings(rho=1.0), profile(20)) is schedule
