"""How a run's time is spread over its intervals."""

import pytest

from elastictrainer.selection.schedule import Schedule
from elastictrainer.selection.shares import shares
from reuse_builders import reusable_chain
from simulation import chain, simulate


@pytest.mark.parametrize("rho", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("step", [0, 100, 700, 999])
def test_what_is_left_stays_the_same_in_all(rho, step):
    schedule = Schedule(10, 100, 4, reuse=True)
    here, later = shares(schedule, rho, step)
    left, now = schedule.steps - step, schedule.interval_end(step) - step
    assert now * here + (left - now) * later == pytest.approx(left)
    assert here >= later


def test_early_intervals_get_more_and_the_last_one_what_is_left():
    schedule = Schedule(12, 100, 4, reuse=True)
    given = [shares(schedule, 0.25, step)[0] for step in schedule.selection_steps]
    assert given[0] > given[1] > given[2] == 1.0
    assert 1.4 < given[0] < 1.5


@pytest.mark.parametrize("rho, reuse", [(0.5, True), (1.0, True), (0.25, False)])
def test_a_run_of_half_the_time_or_more_or_without_reuse_spreads_it_evenly(rho, reuse):
    assert shares(Schedule(12, 100, 4, reuse), rho, 0) == (1.0, 1.0)


def test_a_run_with_one_interval_has_nothing_to_spread():
    schedule = Schedule(4, 100, 4, reuse=True)
    (first,) = schedule.selection_steps
    assert shares(schedule, 0.3, first)[0] == pytest.approx(1.0)


def test_a_short_run_trains_more_while_it_is_young():
    ratios, policy = simulate(0.25, timings=reusable_chain(chain()), reuse=True)
    assert ratios[-1] == pytest.approx(0.25, abs=0.02)
    assert policy.masks[0].sum() > policy.masks[-1].sum()
