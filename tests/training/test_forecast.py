"""The forecast of a run by the clock, by a profile made by hand."""

import re
from types import SimpleNamespace

import pytest

from cache_builders import reusable_chain
from elastictrainer import Profile, UsageError
from elastictrainer.selection.plan import Plan
from elastictrainer.training.deadline import Deadline
from elastictrainer.training.forecast import RunShape, forecast

# A full step takes 100 ms, its forward pass 30.
CHAIN = reusable_chain(Profile.from_chain(list("abcd"), 30.0, [10] * 4, [7.5] * 4))
HEAD = SimpleNamespace(sampled=100, solving_s=2.0)


def of(
    budget_s=200.0,
    intervals=2,
    full_ms=None,
    cached=True,
    selects=True,
    scores=True,
    head=HEAD,
    ending_s=5.0,
    check_s=0.0,
):
    """The forecast of a run that has taken 10 s."""
    plan = Plan([k / intervals for k in range(intervals)], 6.0, 1000)
    state = SimpleNamespace(
        full_step_ms=lambda: full_ms,
        spent_s=lambda: 10.0,
        deadline=Deadline(budget_s, lambda: ending_s, check_s=check_s),
    )
    return forecast(RunShape(CHAIN, plan, cached, head), state, selects, scores)


def test_the_parts_add_up_to_the_budget():
    parts = of()
    assert parts.passes_s == pytest.approx(2 * 30.0 + 3.0 + 2.0), "two passes, a sample, and solving"
    assert parts.selections_s == pytest.approx(2 * 5.0)
    assert parts.training_s == pytest.approx(200 - 10 - 65 - 10 - 5)
    slow = of(full_ms=200.0)
    assert slow.passes_s == pytest.approx(128.0), "a device that is twice as slow as its profile"
    alone = of(selects=False, scores=False, cached=False)
    assert alone.selections_s == 0 and alone.passes_s == pytest.approx(30.0 + 2.0)
    assert of(selects=False, scores=False, head=None).passes_s == 0 and of(head=None).passes_s == 60.0
    unscored = of(scores=False)
    assert unscored.selections_s == pytest.approx(2 * 1.5), "what is not scored costs less to select"
    assert unscored.passes_s == pytest.approx(2 * 30.0 + 2.0), "and needs no head before"
    assert of(check_s=20.0).training_s == of().training_s - 20, "evaluating the head takes time from training"
    assert "20 s to evaluate" in of(check_s=20.0).lines()[1]


def test_the_plan_has_a_line_for_each_part():
    lines = of().lines()
    assert len(lines) == 4 and re.fullmatch(r"\D+200 s\D+10 s\D*", lines[0])
    assert lines[1].split()[-2:] == ["65", "s"] and "110 s, in 2 intervals" in lines[3]
    assert "in one interval" in of(intervals=1).lines()[3] and "evaluate" not in of(ending_s=0.0).lines()[3]


def test_too_little_time_is_refused_with_what_each_part_takes_and_a_time_that_is_enough():
    of().require_enough()
    with pytest.raises(UsageError, match=r"60 s .*10 s .* 65 s.* 10 s.* 5 s") as found:
        of(60.0).require_enough()
    enough = float(str(found.value).split("--time ")[1].split("s")[0])
    of(enough).require_enough()
    with pytest.raises(UsageError):
        of(0.8 * enough).require_enough()


def test_after_a_solved_head_the_least_is_an_epoch_that_takes_as_long_as_a_pass():
    assert of().least_training_s == pytest.approx(30.0)
    cheapest = of(head=None).least_training_s
    assert cheapest == pytest.approx(100 * CHAIN.with_cache.rho_min) and cheapest < 30.0
    assert of(selects=False, scores=False).least_training_s == 0, "the head alone is worth its time"


def test_a_share_of_full_trainings_time_has_no_end_to_keep_time_for():
    state = SimpleNamespace(full_step_ms=lambda: None, spent_s=lambda: 10.0, deadline=None)
    shape = RunShape(CHAIN, Plan([0.0], 6.0, 1000), True, HEAD)
    parts = forecast(shape, state, selects=True, scores=True, seconds=60.0)
    assert (parts.budget_s, parts.ending_s, parts.check_s) == (60.0, 0.0, 0.0)
