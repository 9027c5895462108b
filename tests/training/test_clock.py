"""The clock of a run, on simulated time, and a run that a deadline ends."""

import json
import time

import numpy as np
import psutil
import pytest

from builders import ArrayData, invented_profile, train_classifier
from cache_builders import with_reuse
from clocks import SetClock
from elastictrainer import Deadline
from elastictrainer.steps.rates import RateSchedule
from elastictrainer.training.clock import STEPS, SUSPENDED, Clock, Stopwatch, process_age_s
from elastictrainer.training.planner import Stage
from networks import residual


def simulated(takes_s, seconds, before_s=0.0, steps_per_epoch=4, deadline=True):
    """Train until a clock of `seconds` ends the run: time spent at the end, and the shares before each step.

    `takes_s`: from the number of a step to its seconds; `before_s` pass before the first step.
    """
    time = SetClock()
    if deadline:
        clock = Clock(1, steps_per_epoch, Deadline(seconds, age_s=time))
    else:
        clock = Clock(1, steps_per_epoch, watch=Stopwatch(time))
        clock.budget_s = seconds
    shares, step, latest = [], 0, []
    with clock.watch.lap(STEPS):
        time.now = clock.began_s = before_s
        while not clock.ends(step, float(np.median(latest[-50:])) if latest else 0.0):
            shares.append(clock.share(step))
            latest.append(takes_s(step))
            time.now += latest[-1]
            step += 1
        return clock.spent_s(), shares


@pytest.mark.parametrize(
    "takes_s",
    [
        lambda step: 0.1,
        lambda step: 1.7,
        lambda step: 0.1 if step < 200 else 0.3,  # another process takes two thirds of the processor
        lambda step: 0.3 if step < 100 else 0.1,
        lambda step: 5.0 if step % 50 == 0 else 0.1,
        lambda step: float(np.random.default_rng(step).exponential(0.2)),
    ],
    ids=["steady", "long steps", "slower half-way", "faster", "pauses", "random"],
)
@pytest.mark.parametrize("deadline", [True, False])
def test_a_run_ends_with_its_budget_however_long_its_steps_take(takes_s, deadline):
    spent_s, shares = simulated(takes_s, 60.0, before_s=12.0, deadline=deadline)
    longest = max(takes_s(step) for step in range(len(shares)))
    assert 60.0 - longest <= spent_s <= 60.0 + longest
    assert shares[0] == 0.0 and shares == sorted(shares)
    assert shares[-1] > 1 - 2.5 * longest / (60.0 - 12.0)  # the learning rate has reached its end


def test_a_budget_that_is_used_up_before_the_first_step_gives_an_epoch_or_one_step():
    assert simulated(lambda step: 1.0, 10.0, 15.0, 4, deadline=False) == (19.0, [0.0, 0.25, 0.5, 0.75])
    assert simulated(lambda step: 1.0, 10.0, 15.0, 4) == (16.0, [0.0])


def test_steps_end_a_run_that_has_no_seconds():
    clock = Clock(3, 4)
    assert [clock.share(step) for step in (0, 6, 12, 20)] == [0.0, 0.5, 1.0, 1.0]
    assert not clock.ends(99, 1.0) and clock.left_s() is None and not clock.by_clock


def test_the_age_of_a_process_is_that_of_the_system_whatever_the_wall_clock_says(monkeypatch):
    first = process_age_s()
    assert abs(first - (time.time() - psutil.Process().create_time())) < 1, "not since it was imported"
    monkeypatch.setattr(time, "time", lambda: 0.0)  # somebody sets it during the run
    assert first <= process_age_s() < first + 60


def test_what_the_process_slept_does_not_count():
    time = SetClock()
    clock = Clock(1, 4, Deadline(100.0, lambda: 7.0, age_s=time), Stopwatch(time))
    time.now = 5.0
    assert clock.spent_s() == 5.0 and clock.end_s == 93.0 and clock.left_s() == 88.0
    with clock.watch.lap(STEPS):
        for _ in range(20):
            time.now += 0.01
            assert clock.counted_ms(10.0, STEPS, "these") == 10.0
        time.now += 3600.0
        assert clock.counted_ms(3.6e6, STEPS, "these") == 10.0
        assert clock.counted_ms(99.0, STEPS, "these") == 99.0, "ten times as long is no sleep"
    assert clock.watch.of(SUSPENDED) == pytest.approx(3600 - 0.01)
    assert clock.spent_s() == pytest.approx(5.0 + 21 * 0.01)


def test_a_step_is_compared_with_steps_like_it_and_a_device_that_stays_slow_is_believed():
    clock = Clock()
    for ms, like in ((1.0, "cached"), (50.0, "uncached")):
        assert [clock.counted_ms(ms, STEPS, like) for _ in range(30)] == [ms] * 30
    assert [clock.counted_ms(5000.0, STEPS, "first ones") for _ in range(3)] == [5000.0] * 3
    slow = [clock.counted_ms(ms, STEPS, "slow") for ms in [10.0] * 100 + [200.0] * 200]
    assert slow[-100:] == [200.0] * 100


def test_what_evaluation_is_known_to_take_is_kept_a_fifth_at_most_and_a_tenth_for_a_sample():
    time = SetClock()
    clock = Clock(deadline=Deadline(100.0, lambda: 5.0, images=1000, age_s=time))
    assert clock.ending_s == 5.0, "not known"
    clock.image_s = 0.01
    assert clock.ending_s == 15.0 and clock.end_s == 85.0
    clock.image_s = 0.02
    assert clock.ending_s == 25.0, "all images fit into a fifth"
    clock.image_s = 0.021
    assert clock.ending_s == 15.0, "a sample"
    time.now = 30.0
    assert clock.evaluation_s(ending=False) == 20.0 and clock.evaluation_s(False, of_head=True) == 3.0
    assert clock.evaluation_s(ending=True) == 65.0, "training has left it"
    time.now = 90.0
    assert clock.evaluation_s(ending=False) == clock.evaluation_s(ending=True) == 5.0
    time.now = 107.0
    assert clock.evaluation_s(ending=True) == -12.0
    assert Clock().evaluation_s(ending=False) == np.inf
    time.now = 10.0
    for seconds, more_s in ((60.0, 0.0), (100.0, 60.0)):
        late = Clock(deadline=Deadline(seconds, more_s=more_s, images=1000, image_s=1.0, age_s=time))
        assert late.ending_s == 5.0, "a tenth of what loading has left of what is given now"


def test_a_pass_over_the_images_may_take_half_of_what_is_left():
    clock = Clock(deadline=Deadline(9.0, lambda: 4.0, age_s=lambda: 1.0))
    assert clock.pass_ends_s() == 3.0
    assert clock.pass_ends_s(solving_s=1.5) == 3.5, "a head has all but what solving it takes"
    assert Clock().pass_ends_s() == np.inf, "without a deadline nothing ends it"


def test_a_resumed_run_goes_on_with_its_stage_and_more_time_is_still_there_after_an_interruption():
    time = SetClock()
    clock = Clock(1, 4, Deadline(100.0, age_s=time), Stopwatch(time))
    clock.stage = Stage(True, False, 4.0, None, 50.0, 5.0)
    clock.stage_begun, clock.began_s, time.now = True, 2.0, 30.0
    saved = json.loads(json.dumps(clock.state(), allow_nan=False))
    resumed = Clock(1, 4, Deadline(100.0, age_s=lambda: 5.0))
    resumed.restore(saved)
    assert resumed.spent_s() == 35.0 and resumed.end_s == 100.0 and resumed.began_s == 2.0
    assert resumed.stage == clock.stage and resumed.stage_begun
    extended = Clock(1, 4, Deadline(100.0, more_s=60.0, age_s=lambda: 5.0))
    extended.restore(saved)
    assert extended.spent_s() == 35.0 and extended.end_s == 90.0
    again = Clock(1, 4, Deadline(100.0, age_s=lambda: 7.0))
    again.restore(extended.state())
    assert again.spent_s() == 42.0 and again.end_s == 90.0 and again.stage == clock.stage


@pytest.mark.parametrize("scheme", ["elastic", "full"])
def test_a_real_run_ends_when_its_time_is_used_up(tf, scheme):
    tf.keras.utils.set_random_seed(1)
    model, age_s = residual(tf), SetClock(tick_s=0.1)
    profile = with_reuse(invented_profile(model))
    rates = []

    class Watch(tf.keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            rates.append(float(np.asarray(self.model.optimizer.learning_rate)))

    options = {"scheme": scheme, "profile": profile, "deadline": Deadline(60.0, age_s=age_s)}
    options.update(rates=RateSchedule(0.05), callbacks=[Watch()], epochs=3)
    sgd = tf.keras.optimizers.SGD(0.05)
    history = train_classifier(tf, model, ArrayData(tf, steps=10), sgd, **options)
    results = history.elastic
    assert results["steps"] == len(rates) > 30, "the epochs asked for do not end it"
    assert 58.0 < age_s.now < 61.0
    assert rates == sorted(rates, reverse=True) and rates[0] > 0.045 and rates[-1] < 0.002
    assert len(history.epoch) == results["epochs"]


def test_an_inner_lap_pauses_the_outer_one():
    now = iter([0.0, 1.0, 3.0, 10.0, 10.0])
    watch = Stopwatch(clock=lambda: next(now))
    with watch.lap("outer"):  # opens at 0
        with watch.lap("inner"):  # opens at 1, closes at 3
            pass
    # outer closes at 10
    assert dict(watch.seconds) == {"outer": 8.0, "inner": 2.0}
    assert watch.total("inner") == 8.0
