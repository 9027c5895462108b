"""The start of an interval: how long its steps may take. By a profile made by hand."""

from types import SimpleNamespace

import numpy as np
import pytest

from cache_builders import reusable_chain
from elastictrainer import Profile
from elastictrainer.selection.plan import Plan
from elastictrainer.training.forecast import GRAPH_STEPS
from elastictrainer.training.intervals import Intervals
from elastictrainer.training.stopwatch import IMPORTANCE, TRACING, Stopwatch

# A full step takes 100 ms, its forward pass 30; an epoch has 1,000.
CHAIN = reusable_chain(Profile.from_chain(list("abcd"), 30.0, [10] * 4, [7.5] * 4))
WRITING_S = 30.0 + float(np.median(CHAIN.cache.cache_write_ms))
STEPS = 4000


class Policy:
    """Notes the target; its scores take 8 s. Two intervals, of four epochs each."""

    plan, profile, interval, needs_scores = Plan([0.0, 0.5], 4.0, 1000), CHAIN, 0, False

    def __init__(self, now):
        self.now, self.targets = now, []

    def score(self):
        self.now[0] += 8.0

    def begin(self, target, cached):
        self.targets.append(target)
        return np.ones(4, bool)

    def settle(self, step):
        self.interval += 1


class Head:
    """Takes 5 s to solve."""

    solving_s = 5.0

    def finish(self):
        return {}


def targets_of(head=None, scores=False, intervals=1, step=0):
    """The targets of a run of 1,000 s, of whose clock nothing but the scores takes anything."""
    now = [0.0]
    policy, watch = Policy(now), Stopwatch(lambda: now[0])
    policy.needs_scores = scores
    state = SimpleNamespace(
        policy=policy,
        progress=SimpleNamespace(step=step),
        watch=watch,
        rho=None,
        deadline=SimpleNamespace(check_s=3.0),
        budget=SimpleNamespace(seconds_until=lambda share, spent_s: 1000.0 * share - spent_s),
        spent_s=lambda: now[0],
        full_step_ms=lambda: None,
        follow_deadline=lambda: None,
        tell=lambda event, record: None,
    )
    cache = SimpleNamespace(free_cache=lambda: None, refresh_cache=lambda: None)
    made = Intervals(state, cache, head)
    for _ in range(intervals):
        made.begin()
        watch.seconds[TRACING] += 10.0
    assert watch.of(IMPORTANCE) == 8.0 * intervals
    return policy.targets


def test_steps_have_the_time_that_is_left_when_all_before_them_is_done():
    graphs_s = GRAPH_STEPS * 0.1
    (target,) = targets_of()
    assert target * STEPS * 0.1 == pytest.approx(500 - 8 - graphs_s - WRITING_S)
    (with_head,) = targets_of(Head())
    assert with_head * STEPS * 0.1 == pytest.approx(500 - 8 - graphs_s - WRITING_S - 5 - 3)


def test_what_graphs_take_is_taken_from_what_others_took():
    (target,) = targets_of(scores=True)
    assert target * STEPS * 0.1 == pytest.approx(500 - 8 - 0.4 * 8 - WRITING_S), "as scoring did"
    _, second = targets_of(scores=True, intervals=2)
    assert second * STEPS * 0.1 == pytest.approx(1000 - 16 - 10 - WRITING_S), "as those of the first interval"


def test_a_head_that_an_earlier_run_has_solved_stays():
    class Solved(Head):
        def finish(self):
            raise AssertionError("it was solved before")

    targets_of(Solved(), step=1)
