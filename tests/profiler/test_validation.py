"""The random selections that a profile is validated with. No TensorFlow but for the import."""

import dataclasses

import numpy as np
import pytest

from elastictrainer import Profile


@pytest.fixture(scope="module")
def random_masks(tf):
    from elastictrainer.profiler.validation import random_masks

    return random_masks


TIMINGS = Profile.from_chain([f"w{k}" for k in range(12)], 1.0, np.ones(12), np.ones(12))


def test_every_selection_trains_a_tensor_that_can_be_trained(random_masks):
    connected = np.arange(12) % 3 > 0
    profile = dataclasses.replace(TIMINGS, connected=connected)
    for mask in random_masks(profile, 50, seed=0):
        assert mask.any() and not mask[~connected].any()


def test_selections_are_of_every_depth_and_density(random_masks):
    masks = random_masks(TIMINGS, 200, seed=0)
    assert {int(np.flatnonzero(mask)[0]) for mask in masks} == set(range(12))  # tensor 0 is the deepest
    density = [mask[np.flatnonzero(mask)[0] :].mean() for mask in masks if mask.sum() > 3]
    assert min(density) < 0.5 and max(density) == 1.0


def test_a_seed_gives_the_same_selections_again(random_masks):
    first, again, other = (random_masks(TIMINGS, 5, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
