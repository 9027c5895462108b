"""The sums of a run's times: by a made-up clock and selector, without a model."""

import contextlib
import json
import math

import numpy as np
import pytest

from clocks import SetClock
from elastictrainer import Profile
from elastictrainer.selection.run_selector import Selector
from elastictrainer.training import clock as laps
from elastictrainer.training.clock import CALIBRATION, STEPS, VALIDATION, Clock, Stopwatch
from elastictrainer.training.state import Progress, RunState, summary_of

PARTLY, FULLY = np.array([True, False]), np.array([True, True])


@pytest.fixture
def time():
    return SetClock()


@pytest.fixture
def spend(time):
    """Lets seconds pass in laps, the later ones inside the earlier."""

    def passed(state, seconds, *laps):
        with contextlib.ExitStack() as stack:
            for lap in laps:
                stack.enter_context(state.clock.watch.lap(lap))
            time.now += seconds

    return passed


def make(time, mask=PARTLY, full_ms=20.0, rho=None, scheme="bn-bias", profile=None):
    """The state of a run whose full steps take `full_ms`."""
    state = RunState(None, scheme, rho, Clock(2, 50, watch=Stopwatch(time)))
    state.selector = Selector(mask, profile)
    state.progress.timed_full_ms = [full_ms] if full_ms else []
    return state


def test_the_ratio_is_over_a_full_step_that_was_timed_for_comparison(time):
    state, full = make(time), make(time, FULLY, full_ms=None, scheme="full")
    assert state.ratio(15.0) == 0.75 and state.ratio(None) is None
    full.progress.step_took(20.0)
    assert full.ratio(15.0) is None and full.full_step_ms() == 20.0


def test_the_median_step_of_an_epoch(time):
    state = make(time)
    assert state.epoch_step_ms() is None
    for ms in (1.0, 9.0, 2.0):
        state.progress.step_took(ms)
    assert state.epoch_step_ms() == 2.0


def test_full_training_takes_its_steps_and_what_both_have_in_common(time, spend):
    state = make(time)
    state.progress.step = 100
    spend(state, 3.0, laps.LOOP)
    spend(state, 1.0, laps.CHECKPOINT)
    spend(state, 1.5, STEPS)
    spend(state, 9.0, VALIDATION)
    assert state.full_training_s() == pytest.approx(100 * 0.020 + 3.0 + 1.0)
    spend(state, 5.0, laps.FULL_TRACING)  # the first step is in that
    assert state.full_training_s() == pytest.approx(99 * 0.020 + 3.0 + 1.0 + 5.0)


def test_a_run_by_the_clock_is_compared_with_the_epochs_that_were_asked_for(time, spend):
    state = make(time, rho=0.5, scheme="elastic")
    state.clock.budget_s = 3.0
    spend(state, 1.0, laps.BUILDING)
    spend(state, 0.5, STEPS)
    state.progress.step = 70
    assert state.full_training_s() == pytest.approx(2 * 50 * 0.020 + 1.0)
    assert state.seconds_left() == 1.5


def test_training_is_all_but_validation_and_calibration(time, spend):
    state = make(time)
    state.progress.step = 100
    for name, seconds in ((laps.LOOP, 1.0), (STEPS, 1.0), (VALIDATION, 4.0), (CALIBRATION, 8.0)):
        spend(state, seconds, name)
    spend(state, 0.5, STEPS, laps.TRACING)
    results = summary_of(state)
    assert results["train_seconds"] == 2.5
    assert results["validation_seconds"] == 4.0 and results["calibration_seconds"] == 8.0
    assert results["trace_seconds"] == 0.5 and results["seconds"][STEPS] == 1.0
    assert results["full_training_seconds"] == pytest.approx(3.0)
    assert results["rho_achieved"] == pytest.approx(2.5 / 3.0)


def test_before_the_first_step_little_is_known(time):
    results = summary_of(make(time, full_ms=None, rho=0.5, scheme="elastic"))
    assert results["steps"] == results["selections"] == results["epochs"] == 0
    for name in ("rho_predicted", "rho_achieved", "step_ms_median", "full_training_seconds", "full_step_ms"):
        assert results[name] is None


def test_figures_per_step_and_epoch(time):
    profile = Profile.from_chain(["a", "b"], 1.0, [1.0, 1.0], [1.0, 1.0])
    state = make(time, profile=profile)
    for loss in (1.0, 2.0, 3.0, 4.0):
        state.progress.step_took(10 * loss)
        state.progress.step_done(loss)
        state.progress.predicted_ratio += 0.6
        state.progress.flops += 50.0
    state.progress.epoch_done(state.clock.watch.training())
    results = summary_of(state)
    assert results["rho_predicted"] == pytest.approx(0.6) and results["step_ms_median"] == 25.0
    assert (results["flops_per_step"], results["flops_per_epoch"], results["flops_total"]) == (50, 200, 200)
    assert (results["epochs"], results["steps"], results["full_step_ms"]) == (1, 4, 20.0)


def test_divergence_names_the_step_and_the_last_good_checkpoint(time, tmp_path):
    state = make(time)
    state.progress.step, state.progress.epoch = 7, 1
    assert math.isnan(state.loss)
    assert "nan at step 7 (epoch 2)" in str(state.diverged(f"the loss is {state.loss}"))
    assert "checkpoint" not in str(state.diverged("it"))
    assert "Lower the learning_rate (et-train: --learning-rate)" in str(state.diverged("it"))
    state.last_checkpoint = tmp_path / "step-000000005"
    assert str(state.diverged("it")).endswith(f" {state.last_checkpoint}.")
    state.data_fault = lambda: "the labels of minibatch 3 of epoch 1 hold NaN"
    assert "it at step 7 (epoch 2): the labels of minibatch 3" in str(state.diverged("it"))
    assert "rate" not in str(state.diverged("it"))


def test_an_epoch_begins_anew_and_the_run_goes_on_also_after_a_checkpoint():
    progress = Progress(predicted_ratio=1 / 3, flops=5.0)
    for loss in (2.0, 1.0):
        progress.step_took(30.0)
        progress.step_done(loss)
    assert (progress.batch, progress.step, progress.loss_sum) == (2, 2, 3.0)
    progress.epoch_done(trained_s=1.5)
    assert (progress.epoch, progress.batch, progress.step, progress.loss_sum) == (1, 0, 2, 0.0)
    assert progress.epoch_ms == [] and progress.recent_ms == [30.0, 30.0]
    assert progress.trained_s == 1.5 and progress.epochs_flops == 5.0
    saved = json.loads(json.dumps(progress.to_json()))
    other = Progress()
    other.restore({**saved, "cached": 4})
    assert other == progress, "another version counted more"


def test_a_checkpoint_holds_the_latest_ten_thousand_step_times():
    progress = Progress()
    for k in range(25_000):
        progress.step_took(float(k))
        progress.epoch_ms.clear()
    kept = progress.to_json()["recent_ms"]
    assert len(kept) == 10_000 and kept[-1] == 24_999 and len(progress.recent_ms) <= 20_000
