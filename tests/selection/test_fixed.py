"""The policy of a scheme that does not select. No TensorFlow."""

import json

import numpy as np

from elastictrainer.selection.fixed import FixedPolicy
from elastictrainer.selection.policy import FULL, PLAIN

SOME_TENSORS, ALL_TENSORS = np.array([True, False]), np.array([True, True])


def test_the_mask_stays_and_figures_are_logged_at_every_interval():
    records = []
    policy = FixedPolicy(SOME_TENSORS, at_interval=lambda: {"pruned": 3}, interval=2, log=records.append)
    for step in range(25):
        assert policy.next_mask(step, *divmod(step, 5)) is SOME_TENSORS
    assert records == [{"step": 10, "pruned": 3}, {"step": 20, "pruned": 3}]
    assert not policy.selects and policy.selections == policy.corrections == 0 and policy.masks == []


def test_an_interval_without_figures_is_not_logged():
    records = []
    policy = FixedPolicy(ALL_TENSORS, at_interval=dict, log=records.append)
    policy.next_mask(5, 1, 0)
    assert records == []


def test_full_training_takes_the_mean_of_full_steps_but_for_the_compilation():
    policy = FixedPolicy(ALL_TENSORS)
    assert policy.full_step_ms() is None and policy.full_training_ms(5) is None
    for step, ms in enumerate((900.0, 100.0, 110.0)):
        policy.step_taken(step, ms, None, step == 0, FULL)
    assert policy.full_step_ms() == 105.0 and policy.full_training_ms(10) == 1050.0
    restored = FixedPolicy(ALL_TENSORS)
    restored.restore(json.loads(json.dumps(policy.state())))
    assert restored.full_step_ms() == 105.0


def test_steps_of_some_tensors_tell_nothing_of_full_ones_and_calibration_does():
    policy = FixedPolicy(SOME_TENSORS)
    policy.step_taken(0, 50.0, None, False, PLAIN)
    assert policy.full_step_ms() is None
    policy.calibration_ms += [100.0, 100.0, 130.0]
    assert policy.full_step_ms() == 110.0
    restored = FixedPolicy(SOME_TENSORS)
    restored.restore(json.loads(json.dumps(policy.state())))
    assert restored.calibration_ms == policy.calibration_ms
