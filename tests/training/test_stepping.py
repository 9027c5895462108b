"""One step of a run, on a clock that the test sets: what it is charged with, and what trains in it."""

from types import SimpleNamespace

import numpy as np
import pytest

from builders import random_profile
from cache_builders import with_reuse
from elastictrainer import UsageError
from elastictrainer.steps.rates import RateSchedule
from elastictrainer.training.progress import Progress
from elastictrainer.training.step_source import NextStep
from elastictrainer.training.stepping import Stepping
from elastictrainer.training.stopwatch import STEPS, SUSPENDED, Stopwatch

N = 9  # tensors of the profile
PROFILE = with_reuse(random_profile(np.random.default_rng(0), N))
SELECTED = np.arange(N) > 5


class Run:
    """A run whose steps take what a test says; `stepping.step` trains on nothing."""

    def __init__(self, opening=0, due=False, ends=False, deadline=None, rates=None, head_alone=False):
        self.now, self.step_ms, self.cached, self.timed = 0.0, 10.0, False, True
        self.trained, self.intervals = [], []  # masks of the steps; what was asked of the intervals
        self.watch = Stopwatch(lambda: self.now)
        optimizer = SimpleNamespace(build=None, learning_rate=0.0)  # `build`: it is not of the older kind
        self.model = SimpleNamespace(
            trainable_variables=[object() for _ in range(N)], stop_training=False, optimizer=optimizer
        )
        plan = SimpleNamespace(due=lambda interval, share: due)
        self.policy = SimpleNamespace(plan=plan, interval=1, mask=SELECTED, profile=PROFILE)
        self.state = SimpleNamespace(
            model=self.model,
            progress=Progress(),
            policy=self.policy,
            watch=self.watch,
            rates=rates,
            deadline=deadline,
            budget=SimpleNamespace(began_s=None),
            by_clock=True,
            head_alone=head_alone,
            ends=lambda: ends,
            used_share=lambda: 0.5,
            spent_s=self.watch.training,
            follow_deadline=lambda: self.intervals.append("follow_deadline"),
        )
        note = self.intervals.append
        prepared = SimpleNamespace(
            source=SimpleNamespace(next=self.next),
            opening=opening,
            intervals=SimpleNamespace(begin=lambda: note("begin"), go_on=lambda: note("go_on")),
            graphs=SimpleNamespace(count_step=lambda: {"loss": 1.0}),
        )
        self.stepping = Stepping(self.state, prepared)

    def next(self, mask):
        self.trained.append(mask)
        return NextStep(self.cached, STEPS, self.train, self.timed)

    def train(self):
        self.now += 1e-3 * self.step_ms
        return 0.25

    def steps(self, count, ms=10.0):
        self.step_ms = ms
        for _ in range(count):
            assert self.stepping.step() == {"loss": 1.0}


def test_a_step_during_which_the_machine_slept_counts_as_the_others_do():
    deadline = SimpleNamespace(lost_s=0.0, slowdown=1.0)
    run = Run(deadline=deadline)
    run.steps(20)
    run.steps(1, ms=3_600_000)
    assert run.watch.seconds[SUSPENDED] == pytest.approx(3600 - 0.01) == deadline.lost_s
    assert run.watch.training() == pytest.approx(21 * 0.01)
    assert run.state.progress.recent_ms == pytest.approx([10.0] * 21)
    run.steps(1, ms=99.0)
    assert run.state.progress.recent_ms[-1] == pytest.approx(99.0), "ten times as long is no sleep"


def test_a_step_is_compared_with_cached_or_uncached_ones_of_its_selection_alone():
    """A cached step may take a hundredth of the time of a step that computes everything."""
    for change in ({"cached": False}, {"mask": np.arange(N) > 0}):
        run = Run()
        run.cached = True
        run.steps(30, ms=1.0)
        run.cached, run.policy.mask = change.get("cached", True), change.get("mask", SELECTED)
        run.steps(30, ms=50.0)
        assert run.watch.seconds[SUSPENDED] == 0
        assert run.watch.training() == pytest.approx(30 * 0.001 + 30 * 0.05)


def test_a_device_that_stays_slow_is_believed_after_a_while():
    run = Run()
    run.steps(100)
    run.steps(200, ms=200.0)
    assert run.watch.seconds[SUSPENDED] < 60 * 0.2
    assert run.state.progress.recent_ms[-100:] == pytest.approx([200.0] * 100)


def test_the_first_steps_and_those_of_a_new_graph_are_not_judged():
    run = Run()
    run.steps(19)
    run.timed = False
    run.steps(1, ms=5000.0)
    run.timed = True
    assert len(run.state.progress.recent_ms) == 19 and run.state.step_ms == pytest.approx(5000.0)
    run.steps(1, ms=5000.0)
    assert run.watch.seconds[SUSPENDED] == 0


def test_what_the_profile_says_of_the_steps_is_added_up():
    run = Run()
    run.steps(3)
    run.cached = True
    run.steps(2)
    plain, cached = PROFILE.step_time(SELECTED), PROFILE.with_cache.step_time(SELECTED)
    assert plain != cached
    progress = run.state.progress
    assert progress.predicted_ratio == pytest.approx((3 * plain + 2 * cached) / PROFILE.full_ms)
    assert progress.step == progress.batch == 5 and progress.loss_sum == 5 * 0.25


def test_the_first_interval_follows_the_opening_at_once():
    run = Run(opening=3, due=True)
    run.steps(3)
    assert not run.intervals
    run.steps(2)
    assert run.intervals == ["begin"]
    run.state.progress.epoch_done(0.0)
    run.steps(1)
    assert run.intervals == ["begin"] * 2


def test_an_interval_goes_on_in_another_epoch():
    run = Run()
    run.steps(2)
    run.state.progress.epoch_done(0.0)
    run.steps(2)
    assert run.intervals == ["go_on"] * 2


def test_the_rate_follows_the_share_of_the_budget_that_is_used():
    run = Run(rates=RateSchedule(0.2))
    run.steps(1)
    assert run.model.optimizer.learning_rate == pytest.approx(0.1)


def test_a_run_ends_where_its_budget_is_used_up():
    for ends in (False, True):
        run = Run(ends=ends)
        run.steps(1)
        assert run.model.stop_training == ends


def test_a_device_that_becomes_slower_moves_the_end():
    run = Run(deadline=SimpleNamespace(lost_s=0.0, slowdown=1.0))
    run.steps(20, ms=150.0)  # a block of three seconds, for comparison
    assert "follow_deadline" not in run.intervals
    run.steps(60, ms=300.0)
    assert "follow_deadline" in run.intervals and run.state.deadline.slowdown == pytest.approx(2.0)


def test_a_layer_that_a_callback_freezes_is_noticed_at_the_start_of_an_epoch():
    run = Run()
    run.steps(1)
    run.model.trainable_variables = run.model.trainable_variables[1:]
    run.steps(1)
    run.state.progress.epoch_done(0.0)
    with pytest.raises(UsageError, match="froze or unfroze a layer"):
        run.steps(1)


def test_a_run_of_the_head_alone_ends_after_the_step_that_trains_nothing():
    run = Run(head_alone=True)
    run.timed = False
    run.steps(1)
    assert run.model.stop_training and not run.state.progress.recent_ms
