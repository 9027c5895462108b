"""The selector, against brute force and against the exact solver. No TensorFlow."""

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest

from builders import best_by_brute_force, random_profile
from cache_builders import reusable_chain, with_reuse
from elastictrainer import Profile, UsageError, select
from elastictrainer.profiler.cost_groups import CostGroups
from elastictrainer.profiler.memory import StepMemory
from elastictrainer.selection.selector import (
    LATE_LAYERS,
    UNCHANGED,
    freeze_below,
    select_with_fallback,
    solve_chain,
)
from milp_oracle import milp, solve_groups

PROFILES = sorted((Path(__file__).parent.parent / "files" / "profiles").glob("*.json"))


def random_chain(random, n):
    return Profile.from_chain(list(map(str, range(n))), random.random(), random.random(n), random.random(n))


def test_dp_is_exact_on_500_random_chains():
    random = np.random.default_rng(0)
    for _ in range(500):
        profile = random_chain(random, int(random.integers(1, 9)))
        importance = random.normal(1, 1, len(profile))
        rho = random.uniform(profile.rho_min, 1)
        selection = select(profile, importance, rho)
        assert selection.step_ms <= rho * profile.full_ms * (1 + 1e-11)
        assert selection.importance == pytest.approx(best_by_brute_force(profile, importance, rho))


@pytest.mark.parametrize("cached", [False, True])
def test_dp_keeps_the_budget_and_comes_close_to_milp_where_groups_are_no_chain(cached):
    random, shares = np.random.default_rng(3), []
    for _ in range(150):
        profile = random_profile(random, n=8, groups=6)
        profile = with_reuse(profile, random, 0.9) if cached else profile
        importance = random.normal(0.5, 1, 8)
        rho = random.uniform((profile.with_cache if cached else profile).rho_min, 1)
        selection = select(profile, importance, rho, cached=cached)
        assert selection.step_ms <= rho * profile.full_ms * (1 + 1e-11)
        exact = select(profile, importance, rho, solver=milp, cached=cached).importance
        assert selection.importance <= exact + 1e-9
        shares.append(selection.importance / exact if exact else 1.0)
    assert cached or np.mean(shares) >= 0.99


@pytest.mark.parametrize("path", PROFILES, ids=lambda p: p.stem)
@pytest.mark.parametrize("rho", [0.4, 0.5, 0.7])
def test_on_real_profiles_dp_keeps_the_budget_and_comes_close_to_milp(path, rho):
    profile = Profile.load(path)
    if rho < profile.rho_min:
        pytest.skip(f"rho_min is {profile.rho_min:.3f}")
    sizes = np.array([np.prod(shape) for shape in profile.shapes])
    importance = np.random.default_rng(4).lognormal(0, 2, len(profile)) * np.sqrt(sizes)
    dp, exact = (select(profile, importance, rho, solver=solver) for solver in ("dp", milp))
    for selection in (dp, exact):
        assert selection.step_ms == profile.step_time(selection.mask) <= rho * profile.full_ms * (1 + 1e-11)
    assert 0.97 * exact.importance <= dp.importance <= exact.importance * (1 + 1e-6)


def test_there_is_a_real_profile_of_each_of_the_four_models():
    models = {Profile.load(path).metadata["model"] for path in PROFILES}
    assert models == {"resnet50", "vgg16", "mobilenetv2", "vit"}


def chain(n=4):
    return Profile.from_chain(list("abcdefgh"[:n]), 1.0, np.ones(n), np.ones(n))


def test_nothing_where_no_importance_is_positive():
    selection = select(chain(), [-1.0, 0.0, -2.0, 0.0], 0.8)
    assert not selection.mask.any() and selection.importance == 0


def test_unconnected_tensor_is_never_selected():
    profile = chain()
    profile.connected[2] = False
    for solver in ("dp", milp, lambda *asked: np.ones(4, bool)):
        assert not select(profile, [1.0, 1.0, 9.0, 1.0], 0.9, solver=solver).mask[2]


@pytest.mark.parametrize("rho", [0.0, 0.1, 1.01, float("nan")])
def test_rho_out_of_range_names_the_range(rho):
    with pytest.raises(UsageError, match=r"0\.334 to 1"):
        select(chain(), np.ones(4), rho)


@pytest.mark.parametrize("importance", [[1.0], [1, 2, 3, float("nan")], [1, 2, 3, float("inf")]])
def test_malformed_importance_is_refused(importance):
    with pytest.raises(UsageError, match="importance"):
        select(chain(), importance, 0.8)


def test_unknown_solver_names_the_valid_ones():
    with pytest.raises(UsageError, match="Valid: dp"):
        select(chain(), np.ones(4), 0.8, solver="dq")


class TestFrozenWorkDoneOnce:
    """The time is that of a cached step."""

    @pytest.mark.parametrize("seed", range(15))
    def test_dp_is_exact_on_chains_and_milp_on_all(self, seed):
        random = np.random.default_rng(seed)
        chain = with_reuse(reusable_chain(random_chain(random, int(random.integers(2, 8)))), random, 0.9)
        groups = with_reuse(random_profile(random, n=7, groups=5, frozen_saving=0.2), random, 0.8)
        for profile, solvers in ((chain, ("dp", milp)), (groups, (milp,))):
            importance = random.normal(0.5, 1, len(profile))
            with_cache = profile.with_cache
            rho = random.uniform(with_cache.rho_min, 1)
            best = max(best_by_brute_force(with_cache, importance, rho), 0.0)
            for solver in solvers:
                selection = select(profile, importance, rho, solver, cached=True)
                assert selection.step_ms <= rho * profile.full_ms * (1 + 1e-9)
                assert selection.importance == pytest.approx(best, abs=1e-9)

    def test_a_ratio_below_the_forward_pass_can_be_had(self):
        profile = reusable_chain(Profile.from_chain(list("abcdef"), 6.0, [1.0] * 6, [1.0] * 6))
        assert profile.rho_min > 0.4
        with pytest.raises(UsageError, match="cheapest selection"):
            select(profile, np.ones(6), 0.3)
        assert select(profile, np.ones(6), 0.3, cached=True).mask.any()


def test_freeze_below_takes_all_from_the_output_inwards():
    importance = np.array([9.0, 1.0, 1.0, 1.0])
    assert select(chain(), importance, 5.5 / 9, freeze_below).mask.tolist() == [False, False, True, True]
    assert select(chain(), importance, 1.0, freeze_below).mask.all()


def test_a_solver_of_ones_own_chooses_and_what_is_no_mask_is_refused():
    asked = []

    def last(profile, importance, budget):
        asked.append((len(profile), importance.tolist(), budget))
        return [0, 0, 0, 1]

    selection = select(chain(), [4.0, 3.0, 2.0, 1.0], 0.5, last)
    assert selection.mask.tolist() == [False, False, False, True] and selection.importance == 1
    assert asked == [(4, [4.0, 3.0, 2.0, 1.0], pytest.approx(4.5))]
    with pytest.raises(UsageError, match=r"mask .*\(4,\), not \(2,\)"):
        select(chain(), [4.0, 3.0, 2.0, 1.0], 0.5, lambda *given: [True, False])


def test_cached_is_refused_for_a_profile_without_costs_of_reuse():
    profile = random_chain(np.random.default_rng(0), 4)
    with pytest.raises(UsageError, match="cached steps"):
        select(profile, np.ones(4), 1.0, cached=True)


def masks_and_costs(t_dw, t_dy):
    """Every selection, and what the chain takes of it."""
    masks = np.array(list(itertools.product([False, True], repeat=len(t_dw))))
    paid = [t_dw[m].sum() + (t_dy[: np.flatnonzero(m)[-1] + 1].sum() if m.any() else 0) for m in masks]
    return masks, np.array(paid)


def test_solve_chain_is_exact_where_costs_are_whole_cells():
    random = np.random.default_rng(1)
    for _ in range(300):
        n = int(random.integers(1, 9))
        t_dw, t_dy = random.integers(0, 20, n).astype(float), random.integers(0, 20, n).astype(float)
        importance = random.integers(-5, 20, n) / 7.0
        budget = int(random.integers(1, 120))
        mask = solve_chain(t_dw, np.cumsum(t_dy), importance, float(budget), budget)
        masks, paid = masks_and_costs(t_dw, t_dy)
        assert importance[mask].sum() == pytest.approx((masks @ importance)[paid <= budget].max())


def test_solve_chain_takes_depth_costs_that_do_not_rise_inwards():
    # The second tensor as the earliest one costs 5, the third 1: so both fit together only with the third.
    to_depth, importance = np.array([0.0, 5.0, 1.0]), np.array([1.0, 2.0, 0.5])
    assert solve_chain(np.ones(3), to_depth, importance, 4.0, 4).tolist() == [True, True, True]
    assert solve_chain(np.ones(3), to_depth, importance, 3.0, 3).tolist() == [False, True, True]


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
    return dataclasses.replace(profile, memory=StepMemory(held, graph, 3.0, 0.1, 20.0, 4, graph.scaled(0.0)))


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
    nothing = CostGroups.singletons([0, 0])
    return dataclasses.replace(profile, memory=StepMemory(held, nothing, 5, 1, 1000, 4, nothing))


@pytest.mark.parametrize("solver", ["dp", freeze_below])  # one of one's own is cut from below
def test_a_tensor_that_memory_does_not_hold_is_not_selected(solver):
    assert select(case(), [9.0, 1.0], 1.0, solver, memory=1115).mask.tolist() == [True, True]
    assert select(case(), [9.0, 1.0], 1.0, solver, memory=1114).mask.tolist() == [False, True]
    assert select(case(), [9.0, 1.0], 1.0, solver).mask.tolist() == [True, True]


def test_too_little_memory_for_any_tensor_is_refused_with_the_least():
    with pytest.raises(UsageError, match="too little"):
        select(case(), [9.0, 1.0], 1.0, memory=1014)


def test_a_profile_without_memory_is_told_how_to_get_one():
    profile = dataclasses.replace(case(), memory=None)
    with pytest.raises(UsageError, match="et-profile"):
        select(profile, [9.0, 1.0], 1.0, memory=10**9)


def test_choose_with_little_time_and_memory():
    profile, near = case(), np.array([False, True])
    for importance, rho, previous, exception in (
        ([-1.0, 3.0], profile.rho_min, None, None),
        ([3.0, -1.0], 1.0, None, LATE_LAYERS),
        ([3.0, -1.0], 1.0, near, UNCHANGED),
    ):
        found = select_with_fallback(profile, np.array(importance), rho, previous=previous, memory=1020)
        assert (found[0] == near).all() and found[1] == exception


def test_work_that_the_tensors_of_a_layer_share_is_weighed_as_their_own():
    # A folded kernel's gradient is for its norm's gamma as well. As work on the way back it would come free
    # with all earlier layers: 0.978 of the best importance in the mean, 0.67 at worst.
    shares = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        chain = Profile.from_chain([f"t{i}" for i in range(12)], 10.0, np.full(12, 0.1), np.zeros(12))
        layers, on_the_way = [[i, i + 1] for i in range(0, 12, 2)], [range(i) for i in range(2, 12, 2)]
        ms = [*rng.exponential(5, 6), *rng.exponential(3, 5)]
        profile = dataclasses.replace(chain, dy=CostGroups.from_sets(12, [*layers, *on_the_way], ms))
        importance, rho = rng.exponential(1, 12), float(rng.uniform(0.35, 0.8))
        best = best_by_brute_force(profile, importance, max(rho, profile.rho_min))
        shares.append(select(profile, importance, rho).importance / best)
    assert np.mean(shares) > 0.99 and min(shares) > 0.85 and max(shares) <= 1 + 1e-9
