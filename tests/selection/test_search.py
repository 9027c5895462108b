"""Time and memory together, against the exact optimum of random cases. No TensorFlow."""

import dataclasses

import numpy as np
import pytest

from builders import random_profile
from elastictrainer import Profile, UsageError, select
from elastictrainer.profiler.cost_groups import CostGroups
from elastictrainer.profiler.step_memory import StepMemory
from elastictrainer.selection.selector import freeze_below, select_with_fallback
from milp_oracle import solve_groups


def with_memory(profile, random):
    """Each tensor holds something of its own, and something for all that lie deeper, with exceptions."""
    n, place = len(profile), np.argsort(profile.order)
    sets = [[i] for i in range(n)]
    for k in range(n):
        earlier = np.flatnonzero(place >= k)
        if random.random() < 0.3:
            earlier = earlier[random.random(len(earlier)) < 0.8]
        sets.append(earlier)
    sets = [members for members in sets if len(members)]
    held = CostGroups.from_sets(n, sets, random.lognormal(0, 1, len(sets)))
    graph = CostGroups.singletons(random.random(n) / 10)
    return dataclasses.replace(profile, memory=StepMemory(held, graph, 3.0, 0.1, 20.0, 4))


def random_case(seed):
    """A profile, importances, a feasible rho and a feasible memory."""
    random = np.random.default_rng(seed)
    n = int(random.integers(5, 25))
    if seed % 2:
        profile = random_profile(random, n=n, groups=n, frozen_saving=0.2 * (seed % 3))
    else:
        times = random.random((2, n))
        profile = Profile.from_chain(list(map(str, range(n))), random.random() * n / 2, *times)
    profile = with_memory(profile, random)
    memory = profile.memory
    least, most = memory.loaded + memory.alone.min(), memory.total(np.ones(n, bool))
    importance = random.normal(0.7, 1, n)
    importance[0] = abs(importance[0])
    return profile, importance, random.uniform(profile.rho_min, 1), random.uniform(least, most)


def test_select_keeps_time_and_memory_and_comes_close_to_the_optimum_of_200_random_cases():
    shares = []
    for seed in range(200):
        profile, importance, rho, memory = random_case(seed)
        selection = select(profile, importance, rho, memory=memory)
        budget = rho * profile.full_ms * (1 + 1e-12)
        assert profile.step_time(selection.mask) <= budget * (1 + 1e-11)
        assert profile.memory.total(selection.mask) <= memory * (1 + 1e-11)
        useful = (importance > 0) & profile.connected
        exact = importance[solve_groups(profile, importance, useful, budget, memory)].sum()
        if exact > 0:
            shares.append(selection.importance / exact)
    assert len(shares) > 150
    assert np.mean(shares) >= 0.998 and min(shares) >= 0.98, (np.mean(shares), min(shares))


def case():
    """Two tensors of which the first, the deeper one, is worth more and holds more."""
    profile = Profile.from_chain(["deep", "near"], 1.0, [1.0, 1.0], [1.0, 1.0])
    held = CostGroups.from_sets(2, [[0], [0, 1]], [100.0, 10.0])
    return dataclasses.replace(profile, memory=StepMemory(held, CostGroups.singletons([0, 0]), 5, 1, 1000, 4))


def test_a_tensor_that_memory_does_not_hold_is_not_selected():
    assert select(case(), [9.0, 1.0], 1.0, memory=1115).mask.tolist() == [True, True]
    assert select(case(), [9.0, 1.0], 1.0, memory=1114).mask.tolist() == [False, True]
    assert select(case(), [9.0, 1.0], 1.0).mask.tolist() == [True, True]


def test_too_little_memory_for_any_tensor_is_refused_with_the_least():
    with pytest.raises(UsageError, match="too little"):
        select(case(), [9.0, 1.0], 1.0, memory=1014)


def test_a_profile_without_memory_is_told_how_to_get_one():
    profile = dataclasses.replace(case(), memory=None)
    with pytest.raises(UsageError, match="et-profile"):
        select(profile, [9.0, 1.0], 1.0, memory=10**9)


def test_a_solver_of_ones_own_is_cut_from_below():
    assert select(case(), [9.0, 1.0], 1.0, freeze_below, memory=1114).mask.tolist() == [False, True]
    assert select(case(), [9.0, 1.0], 1.0, freeze_below, memory=1115).mask.tolist() == [True, True]


def test_choose_with_little_time_and_memory():
    profile = case()
    mask, remark = select_with_fallback(profile, np.array([-1.0, 3.0]), profile.rho_min, memory=1020)
    assert mask.tolist() == [False, True] and remark is None
    with pytest.raises(UsageError, match="no tensor's update"):
        select_with_fallback(profile, np.array([3.0, -1.0]), 1.0, memory=1020)
    mask, _ = select_with_fallback(
        profile, np.array([3.0, -1.0]), 1.0, previous=np.array([False, True]), memory=1020
    )
    assert mask.tolist() == [False, True]
