"""The division of a run's time into intervals. No TensorFlow."""

import dataclasses

import pytest

from cache_builders import reusable_chain
from elastictrainer import Profile, UsageError
from elastictrainer.selection.plan import Plan, make_plan, require_reachable

CHAIN = reusable_chain(Profile.from_chain(list("abcd"), 30.0, [10] * 4, [7.5] * 4))  # a full step: 100 ms


def intervals(**changes):
    usual = {"steps_per_epoch": 100, "epochs": 12, "full_epochs": 6.0, "cached": True, "by_clock": True}
    return make_plan(CHAIN, **{**usual, **changes})


@pytest.mark.parametrize(
    "changes, count, epochs_per_interval",
    [
        # A forward pass is 0.3 of a full step.
        ({"full_epochs": 0.2}, 1, 1.0),
        ({"full_epochs": 0.6}, 1, 2.0),
        ({"full_epochs": 1.8}, 1, 6.0),
        ({"full_epochs": 3.0}, 1, 10.0),
        ({"full_epochs": 6.0}, 2, 10.0),
        ({"full_epochs": 60.0}, 4, 12.0),
        # Steps end the run: its epochs are divided.
        ({"by_clock": False}, 2, 6.0),
        ({"by_clock": False, "epochs": 2}, 1, 2.0),
        ({"by_clock": False, "epochs": 1}, 1, 1.0),
        # The paper's method, and what the user asks for.
        ({"cached": False, "by_clock": False}, 3, 4.0),
        ({"cached": False, "by_clock": False, "interval": 6}, 2, 6.0),
        ({"interval": 3}, 4, 5.0),
    ],
)
def test_how_many_intervals_a_run_has(changes, count, epochs_per_interval):
    found = intervals(**changes)
    assert (
        found.starts == [k / count for k in range(count)] and found.epochs_per_interval == epochs_per_interval
    )


def test_a_scheme_that_does_not_select_has_intervals_without_a_profile():
    assert make_plan(None, 100, 8, 8.0, False).starts == [0.0, 0.5]


def test_an_interval_begins_at_the_epoch_nearest_to_its_start():
    found = Plan([0.0, 0.5], epochs_per_interval=2.0, steps_per_epoch=10)
    assert found.due(0, 0.0) and not found.due(1, 0.3) and found.due(1, 0.38) and not found.due(2, 1.0)
    assert [found.end(k) for k in range(2)] == [0.5, 1.0]


def test_every_epoch_of_a_run_of_steps_is_in_its_interval():
    found = intervals(by_clock=False, cached=False, interval=4)
    begun, at = 0, []
    for epoch in range(12):
        if found.due(begun, epoch / 12):
            begun += 1
            at.append(epoch)
    assert at == [0, 4, 8]


def test_a_time_below_the_cheapest_selection_is_refused_with_the_lowest():
    lowest = CHAIN.with_cache.rho_min
    assert lowest < CHAIN.rho_min
    require_reachable(lowest, CHAIN, cached=True)
    with pytest.raises(UsageError, match=rf"Valid: {lowest:.3f} to 1\.$"):
        require_reachable(lowest / 2, CHAIN, cached=True)
    with pytest.raises(UsageError, match=rf"Valid: {CHAIN.rho_min:.3f} to 1..*--activation-cache auto"):
        require_reachable(lowest, CHAIN, cached=False)


def test_a_plan_has_fewer_intervals_where_writing_the_cache_costs_more():
    dear = dataclasses.replace(CHAIN, forward=CHAIN.forward.scaled(4.0))
    assert len(make_plan(dear, 100, 12, 6.0, True, by_clock=True).starts) < len(intervals().starts)
