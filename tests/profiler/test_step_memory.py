"""The memory model: sums over groups, other minibatches, and its file. No TensorFlow."""

import json

import numpy as np
import pytest

from builders import random_profile
from elastictrainer import Profile
from elastictrainer.profiler.cost_groups import CostGroups
from elastictrainer.profiler.step_memory import StepMemory


def memory():
    return StepMemory(
        held=CostGroups.from_sets(3, [[0], [0, 1], [0, 1, 2]], [100.0, 20.0, 8.0]),
        graph=CostGroups.singletons([1.0, 2.0, 3.0]),
        always=1000.0,
        forward=50.0,
        loaded=5000.0,
        batch=4,
        measured=1140.0,
        slots=CostGroups.singletons([10.0, 20.0, 30.0]),
    )


@pytest.mark.parametrize(
    "selected, expected",
    [([0], 1000 + 11 + 128), ([0, 2], 1000 + 44 + 128), ([1], 1000 + 22 + 50), ([], 1000 + 50)],
)
def test_a_step_holds_what_the_gradients_of_the_selected_need(selected, expected):
    mask = np.isin(np.arange(3), selected)
    assert memory().step_bytes(mask) == expected
    assert memory().total(mask) == 5000 + expected


def test_the_room_is_what_the_groups_may_add_up_to():
    groups, room = memory().groups, memory().room(6139)
    assert room == 139
    mask = np.array([True, False, False])
    assert groups.amount[groups.active_groups(mask)].sum() == 139
    assert memory().total(mask) == 6139
    assert memory().room(6050) == 0, "not even the forward pass fits"


def test_activations_scale_with_the_minibatch_and_graphs_do_not():
    mask = np.ones(3, bool)
    assert memory().for_batch(2).step_bytes(mask) == 1000 + 66 + 64
    assert memory().largest_batch(mask, 5000 + 1000 + 66 + 96) == 3
    assert memory().largest_batch(mask, 5000 + 1000 + 66 + 31) == 0
    assert memory().largest_batch(mask, 10**9) == 4


def test_steps_that_undo_their_updates_have_no_slots():
    assert memory().undone().step_bytes(np.ones(3, bool)) == 1000 + 6 + 128


def test_a_profile_file_keeps_step_memory(tmp_path):
    profile = random_profile(np.random.default_rng(0), n=3)
    profile.memory = memory()
    profile.save(tmp_path / "profile.json")
    again = Profile.load(tmp_path / "profile.json").memory
    assert again.to_json() == memory().to_json()
    assert again.step_bytes(np.ones(3, bool)) == memory().step_bytes(np.ones(3, bool))


def test_a_profile_file_without_slots_loads(tmp_path):
    profile = random_profile(np.random.default_rng(0), n=3)
    profile.memory = memory()
    value = profile.to_json()
    del value["memory"]["slots"]
    (tmp_path / "old.json").write_text(json.dumps(value))
    assert Profile.load(tmp_path / "old.json").memory.to_json() == memory().undone().to_json()


def test_a_profile_file_without_step_memory_loads(tmp_path):
    value = random_profile(np.random.default_rng(0), n=3).to_json()
    del value["memory"]
    (tmp_path / "old.json").write_text(json.dumps(value))
    assert Profile.load(tmp_path / "old.json").memory is None
