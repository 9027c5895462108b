"""What a profile says of recording and replaying, corrected by the clock."""

import dataclasses

import numpy as np
import pytest

from builders import quick_profile, random_timings
from elastictrainer.selection.policy import FULL, PLAIN, RECORDING, REPLAY
from networks import augmented, residual
from reuse_builders import with_reuse


def ratios(timings, mask):
    """What the profile predicts, by kind of step."""
    times = {
        PLAIN: timings.step_time(mask),
        RECORDING: timings.recording_time(mask),
        REPLAY: timings.replay_time(mask),
    }
    return {kind: ms / timings.full_ms for kind, ms in times.items()}


@pytest.mark.parametrize("seed", range(5))
def test_what_two_parts_cost_is_found_whatever_the_plain_step_takes(tf, seed):
    from elastictrainer.reuse.calibration import calibrated, middle

    timings = with_reuse(random_timings(np.random.default_rng(seed)))
    costs = dict.fromkeys(("write_ms", "write_ms_per_mb", "read_ms", "read_ms_per_mb"), 1e-3)
    reuse = dataclasses.replace(timings.reuse, recompute_ms=np.zeros(len(timings)), **costs)
    timings = dataclasses.replace(timings, reuse=reuse)
    true = dataclasses.replace(timings, reuse=dataclasses.replace(reuse, write_ms=0.011, read_ms=0.004))
    mask = middle(timings)
    assert timings.replay_time(mask) < timings.step_time(mask), "nothing is saved: a test of nothing"
    measured = {kind: ratio + 0.1 for kind, ratio in ratios(true, mask).items()}
    found = calibrated(timings, measured).reuse
    assert (found.write_ms, found.read_ms) == pytest.approx((0.011, 0.004))


def test_a_cost_is_never_negative(tf):
    from elastictrainer.reuse.calibration import calibrated, middle

    timings = with_reuse(random_timings(np.random.default_rng(0)))
    measured = {**ratios(timings, middle(timings)), RECORDING: 0.0, REPLAY: 0.0}
    found = calibrated(timings, measured).reuse
    assert found.write_ms == found.read_ms == 0


@pytest.mark.parametrize("network", [residual, augmented], ids=lambda n: n.__name__)
def test_all_kinds_of_steps_run_and_leave_no_trace(tf, network):
    from elastictrainer.reuse.calibration import StepsOfKinds, middle, with_calibrated_reuse
    from elastictrainer.reuse.costs import with_reuse_costs
    from elastictrainer.steps import optimizers
    from elastictrainer.steps.objective import Objective, classification_loss

    model = network(tf)
    optimizer = optimizers.make("sgd", 0.1)
    optimizers.build(optimizer, model.trainable_variables)
    batch = tf.random.uniform((4, *model.input_shape[1:])), tf.constant([0, 1, 2, 0], tf.int64)
    objective = Objective(model, classification_loss())
    timings = with_reuse_costs(quick_profile(model, batch, optimizer=optimizer), objective, optimizer, batch)
    before = [v.numpy() for v in [*model.variables, *optimizers.variables_of(optimizer)]]
    steps = StepsOfKinds(timings, middle(timings), objective, optimizer, batch)
    found = steps.ratios(0.1, warmup=20)  # more than fit into the recording: it begins anew
    assert all(steps.get(kind).runs >= 20 for kind in (FULL, PLAIN, RECORDING, REPLAY))
    assert found.keys() == {PLAIN, RECORDING, REPLAY} and min(found.values()) > 0
    steps.close()
    for value, variable in zip(before, [*model.variables, *optimizers.variables_of(optimizer)]):
        np.testing.assert_array_equal(value, variable.numpy())
    assert with_calibrated_reuse(timings, objective, optimizer, batch, seconds=0.5) is timings
