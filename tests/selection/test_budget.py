"""The budget of a run: steps, or seconds of a simulated clock. No TensorFlow."""

import numpy as np
import pytest

from elastictrainer.selection.budget import Budget


def simulate(budget, takes_s, head_s=0.0, most=100_000):
    """Train until the budget is used up; `takes_s` tells what each step takes. Returns seconds and shares."""
    spent_s, step, shares, recent = head_s, 0, [], []
    budget.began_s = head_s
    while not budget.used_up(step, spent_s, float(np.median(recent[-50:])) if recent else 0.0):
        shares.append(budget.share(step, spent_s))
        recent.append(takes_s(step))
        spent_s += recent[-1]
        step += 1
        assert step < most
    return spent_s, shares


def test_a_run_of_steps_ends_after_them_whatever_they_take():
    spent_s, shares = simulate(Budget(steps=40), lambda step: 3.0)
    assert spent_s == 120.0 and shares == [k / 40 for k in range(40)]


@pytest.mark.parametrize(
    "takes_s",
    [
        lambda step: 0.1,
        lambda step: 0.1 if step < 300 else 0.2,  # it throttles
        lambda step: 0.1 * np.random.default_rng(step).lognormal(0, 0.5),
        lambda step: 1.7,  # few, long steps
    ],
    ids=["steady", "slower", "noisy", "long"],
)
def test_a_run_of_seconds_ends_within_half_a_step_of_them(takes_s):
    spent_s, shares = simulate(Budget(seconds=60.0), takes_s, head_s=12.0)
    longest = max(takes_s(step) for step in range(len(shares)))
    assert 60.0 - longest <= spent_s <= 60.0 + longest
    assert shares[0] == 0.0 and shares == sorted(shares)
    assert shares[-1] > 1 - 2.5 * longest / (60.0 - 12.0)  # the learning rate has reached its end


def test_the_share_counts_from_the_first_step_on():
    budget = Budget(seconds=100.0, began_s=20.0)
    assert budget.share(0, 60.0) == 0.0
    assert [budget.share(5, s) for s in (10.0, 20.0, 60.0, 100.0, 130.0)] == [0.0, 0.0, 0.5, 1.0, 1.0]
    assert budget.seconds_until(0.5, 30.0) == 30.0 and budget.seconds_until(1.0, 110.0) == -10.0
    assert Budget(steps=5).seconds_until(0.5, 1.0) is None


def test_a_budget_that_is_used_up_before_the_first_step_gives_the_least_number_of_steps():
    budget = Budget(seconds=10.0, began_s=15.0, least=4)
    assert [budget.share(step, 15.0 + step) for step in range(5)] == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert not budget.used_up(3, 18.0, 0.1) and budget.used_up(4, 19.0, 0.1)
