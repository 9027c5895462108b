"""A profile of fewer examples, scaled to a minibatch. No TensorFlow."""

import dataclasses

import numpy as np
import pytest

from builders import random_profile
from cache_builders import with_reuse
from elastictrainer.profiler.cost_groups import CostGroups
from elastictrainer.profiler.scaled import for_batch, time_ratio
from elastictrainer.profiler.step_memory import StepMemory


@pytest.fixture
def profile():
    random = np.random.default_rng(0)
    made = with_reuse(random_profile(random, n=5), random, 0.9)
    groups = CostGroups.singletons(np.ones(5))
    return dataclasses.replace(made, memory=StepMemory(groups, groups, 1.0, 0.5, 9.0, 1))


def test_times_grow_by_what_an_example_was_measured_to_take(profile):
    profile.metadata["example_ms"] = 0.25 * profile.full_ms
    scaled = for_batch(profile, 1, 4)
    mask = np.array([True, False, True, False, False])
    assert scaled.full_ms == pytest.approx(1.75 * profile.full_ms)
    assert scaled.step_time(mask) == pytest.approx(1.75 * profile.step_time(mask))
    assert scaled.validation_errors == pytest.approx(profile.validation_errors)
    # A later run has the scaled profile, of four examples.
    assert time_ratio(scaled, 4, 1, 4) == pytest.approx(1.75)
    assert time_ratio(scaled, 4, 2, 4) == pytest.approx(1.75 / 1.25)


def test_all_but_the_updates_is_proportional_to_the_examples_where_nothing_was_measured(profile):
    update = float(profile.t_update.sum())
    assert 0 < update < profile.full_ms
    expected = update + 4 * (profile.full_ms - update)
    assert for_batch(profile, 1, 4).full_ms == pytest.approx(expected)


def test_bytes_are_proportional_to_the_examples(profile):
    scaled = for_batch(profile, 1, 4)
    assert scaled.cache.cut_mb == pytest.approx(4 * profile.cache.cut_mb)
    assert scaled.memory.batch == 4
    assert scaled.memory.step_bytes(np.array([True, False, True, False, False])) == 1 + 2 + 8
    assert scaled.metadata["measured_examples"] == 1
