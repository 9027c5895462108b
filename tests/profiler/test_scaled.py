"""A profile of fewer examples, scaled to a minibatch. No TensorFlow."""

import dataclasses

import numpy as np
import pytest

from builders import random_profile
from elastictrainer.profiler.cost_groups import CostGroups
from elastictrainer.profiler.scaled import for_batch
from elastictrainer.profiler.step_memory import StepMemory
from reuse_builders import with_reuse


def test_every_time_grows_alike_and_the_profile_says_so():
    random = np.random.default_rng(0)
    profile = with_reuse(random_profile(random, n=5), random, 0.9)
    groups = CostGroups.singletons(np.ones(5))
    profile = dataclasses.replace(profile, memory=StepMemory(groups, groups, 1.0, 0.5, 9.0, 1))
    scaled = for_batch(profile, 1, 4)
    mask = np.array([True, False, True, False, False])
    assert scaled.step_time(mask) == pytest.approx(4 * profile.step_time(mask))
    assert scaled.full_ms == pytest.approx(4 * profile.full_ms)
    assert scaled.reuse.cut_mb == pytest.approx(4 * profile.reuse.cut_mb)
    assert scaled.memory.batch == 4
    assert scaled.memory.step_bytes(mask) == 1 + 2 + 8
    assert scaled.metadata["measured_examples"] == 1
    assert scaled.validation_errors == pytest.approx(profile.validation_errors)
