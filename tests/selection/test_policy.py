"""The policy of a scheme that does not select. No TensorFlow."""

import json

import numpy as np

from elastictrainer.selection.plan import Plan
from elastictrainer.selection.policy import Policy

SOME_TENSORS = np.array([True, False])
PLAN = Plan([0.0, 0.5], 2.0, 5)


def test_the_mask_stays_and_figures_are_logged_at_every_interval_but_the_first():
    records = []
    policy = Policy(SOME_TENSORS, PLAN, at_interval=lambda: {"pruned": 3}, log=records.append)
    for step in (0, 10, 20):
        assert policy.begin(1.0, cached=False) is SOME_TENSORS
        policy.settle(step)
        policy.settle(step)  # where the interval turned out not to be cached
    assert records == [{"step": 10, "pruned": 3}, {"step": 20, "pruned": 3}]
    policy.without_cache(1.0)
    assert policy.mask is SOME_TENSORS
    assert not policy.selects and policy.masks == [] and policy.interval == 3


def test_an_interval_without_figures_is_not_logged():
    records = []
    policy = Policy(SOME_TENSORS, PLAN, at_interval=dict, log=records.append)
    for step in (0, 5):
        policy.begin(1.0, cached=False)
        policy.settle(step)
    assert records == []


def test_a_restored_policy_knows_its_interval():
    policy, restored = Policy(SOME_TENSORS, PLAN), Policy(SOME_TENSORS, PLAN)
    policy.begin(1.0, cached=False)
    restored.restore(json.loads(json.dumps(policy.state())))
    assert restored.interval == 1
