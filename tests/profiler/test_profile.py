"""The time model, and its file. No TensorFlow."""

import dataclasses
import json

import numpy as np
import pytest

from builders import random_profile
from cache_builders import with_reuse
from elastictrainer import Profile, UsageError, select
from elastictrainer.profiler.cost_groups import CostGroups
from elastictrainer.profiler.memory import StepMemory


def chain(t_dw=(1.0, 2.0, 4.0), t_dy=(0.5, 0.25, 0.125), forward_ms=3.0):
    return Profile.from_chain([f"w{i}" for i in range(len(t_dw))], forward_ms, t_dw, t_dy)


def test_chain_pays_dy_of_every_tensor_from_the_output_down_to_the_deepest_selected():
    profile = chain()
    assert profile.step_time([False, False, False]) == 3.0
    assert profile.step_time([False, False, True]) == 3.0 + 0.125 + 4.0
    assert profile.step_time([False, True, False]) == 3.0 + 0.125 + 0.25 + 2.0
    assert profile.step_time([True, False, True]) == 3.0 + 0.125 + 0.25 + 0.5 + 1.0 + 4.0
    assert profile.full_ms == profile.step_time([True] * 3) == 3.0 + 7.0 + 0.875


def test_rho_min_is_the_cheapest_single_tensor():
    profile = chain()
    singles = [profile.step_time(np.arange(3) == i) for i in range(3)]
    assert profile.rho_min == min(singles) / profile.full_ms


@pytest.mark.parametrize(
    "t_dw, t_dy", [([1.0], [1.0, 2.0]), ([1.0, -1.0], [0.0, 0.0]), ([1.0, np.inf], [0.0, 0.0])]
)
def test_chain_refuses_malformed_times(t_dw, t_dy):
    with pytest.raises(UsageError):
        Profile.from_chain(["a", "b"], 1.0, t_dw, t_dy)


@pytest.mark.parametrize("frozen_saving", [0.0, 0.3])
def test_step_time_is_the_forward_pass_plus_groups_with_a_selected_member(frozen_saving):
    random = np.random.default_rng(0)
    for _ in range(20):
        profile = random_profile(random, frozen_saving=frozen_saving)
        mask = random.random(9) < 0.4
        selected = set(np.flatnonzero(mask))
        groups = [*profile.dw.sets(), *profile.shared.sets()]
        expected = profile.forward_ms + sum(ms for members, ms in groups if selected & set(members))
        assert profile.step_time(mask) == pytest.approx(expected + profile.t_update[mask].sum())


def test_frozen_forward_work_is_cheaper_and_the_full_step_is_not():
    random_a, random_b = np.random.default_rng(1), np.random.default_rng(1)
    plain, frozen = random_profile(random_a), random_profile(random_b, frozen_saving=0.5)
    assert frozen.full_ms == pytest.approx(plain.full_ms) == pytest.approx(frozen.step_time(np.ones(9, bool)))
    nothing = np.zeros(9, bool)
    always = plain.forward.amount[0]
    assert frozen.step_time(nothing) == pytest.approx(always + 0.5 * (plain.step_time(nothing) - always))
    np.testing.assert_allclose(plain.t_dy, frozen.t_dy)


def chain_time(profile, mask):
    """The ms of a step by the paper's chain: shared work up to and with the earliest selected tensor."""
    shared = profile.shared.amount_at_first_member(profile.order)
    return profile.forward_ms + shared[~profile.is_earlier(mask)].sum() + profile.t_alone[mask].sum()


@pytest.mark.parametrize("frozen_saving", [0.0, 0.4])
def test_chain_never_promises_less_time_than_the_groups(frozen_saving):
    random = np.random.default_rng(2)
    for _ in range(100):
        profile = random_profile(random, frozen_saving=frozen_saving)
        mask = random.random(9) < random.random()
        assert chain_time(profile, mask) >= profile.step_time(mask) - 1e-12
    assert chain_time(profile, np.ones(9, bool)) == pytest.approx(profile.full_ms)


def test_mask_of_another_length_is_refused():
    with pytest.raises(UsageError, match=r"\(3,\)"):
        chain().step_time([True])


def test_core_and_plots_import_no_tensorflow():
    import subprocess
    import sys

    code = (
        "import sys; from elastictrainer import Profile, select; "
        "import elastictrainer.plotting.report, "
        "elastictrainer.profiler.attribution, elastictrainer.profiler.xplane, "
        "elastictrainer.training.clock; "
        "sys.exit('tensorflow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_work_that_a_kernel_shares_with_the_gamma_of_its_norm_is_shown_as_the_kernels_own():
    """Tensors k0, k1, g1 from the input; the gradient of k1 is that of g1, too."""
    profile = dataclasses.replace(
        chain(),
        dw=CostGroups.singletons([2.0, 0.0, 0.5]),
        dy=CostGroups.from_sets(3, [(0, 1, 2), (1, 2), (0,)], [4.0, 3.0, 1.0]),
        t_update=np.array([0.1, 0.2, 0.3]),
    )
    np.testing.assert_allclose(profile.t_alone, [2.1, 0.2, 0.8])
    np.testing.assert_allclose(profile.t_dw, [2.1, 3.2, 0.8])
    np.testing.assert_allclose(profile.t_dy, [1.0, 0.0, 4.0])
    shown_ms = sum(profile.t_dw + profile.t_dy + profile.t_forward)
    assert shown_ms + profile.forward.always == pytest.approx(profile.full_ms)


def test_the_smallest_ratio_is_never_above_one():
    """With one tensor the cheapest selection is the full step, whichever way the sums are rounded."""
    random = np.random.default_rng(0)
    for _ in range(200):
        chain = Profile.from_chain(["only"], 1.0, [random.random()], [random.random()])
        forward = CostGroups.from_sets(1, [(), (0,)], random.random(2))
        others = {"frozen_saving": random.random(), "t_update": random.random(1)}
        profile = dataclasses.replace(chain, forward=forward, **others)
        assert profile.rho_min <= 1
        assert select(profile, [1.0], 1.0).mask.all()


class TestFrozenWorkDoneOnce:
    """The mean step of an interval that writes the cache in its first epoch, and reads it in the others."""

    @pytest.mark.parametrize("seed", range(5))
    def test_a_cached_step_leaves_out_what_was_cached_unless_reading_takes_longer(self, seed):
        random = np.random.default_rng(seed)
        profile = with_reuse(random_profile(random, frozen_saving=0.2), random, 0.8)
        mask = random.random(len(profile)) < 0.4
        mask[profile.order[0]] = True
        earliest = profile.order[mask[profile.order]][-1]
        reading_ms = min(profile.cache.cache_read_ms[earliest], profile.saved_ms[earliest])
        once = profile.cache.once
        done = ~once.active_groups(mask) & once.has_members()
        done_ms = (1 - profile.frozen_saving) * once.amount[done].sum() + once.always
        expected = profile.step_time(mask) - done_ms + reading_ms
        assert profile.with_cache.step_time(mask) == pytest.approx(expected)
        cache_write_ms = profile.saved_ms[earliest] + profile.cache.cache_write_ms[earliest]
        assert profile.cache_write_time(mask) == pytest.approx(cache_write_ms)

    def test_by_hand(self):
        profile = with_reuse(Profile.from_chain("abc", 6.0, [1, 1, 1], [1, 1, 1]))
        forward = CostGroups.from_sets(3, [(), (0,), (0, 1), (0, 1, 2)], [1.0, 2.0, 2.0, 1.0])
        once = CostGroups.from_sets(3, [(), (0,), (0, 1)], [0.5, 2.0, 2.0])
        cache = dataclasses.replace(profile.cache, once=once)
        profile = dataclasses.replace(profile, forward=forward, cache=cache)
        last = [False, False, True]
        # A step: 6 forward, dW 1, dy 1. Replay: without 4.5 of the forward pass; 0.01 + 0.03 to read 1 MB.
        assert profile.step_time(last) == pytest.approx(8)
        assert profile.with_cache.step_time(last) == pytest.approx(8 - 4.5 + 0.04)
        assert profile.cache_write_time(last) == pytest.approx(4.5 + 0.07)
        middle = [False, True, True]
        assert profile.with_cache.step_time(middle) == pytest.approx(6 + 2 + 2 - 2.5 + 0.04)

    def test_a_cached_step_computes_less_of_the_forward_pass(self):
        chain = with_reuse(Profile.from_chain("abc", 6.0, [1, 1, 1], [1, 1, 1]))
        once = CostGroups.from_sets(3, [(), (0,)], [10.0, 40.0])
        profile = dataclasses.replace(
            chain,
            flops=CostGroups.from_sets(3, [(), (2,), (0,)], [100.0, 20.0, 30.0]),
            cache=dataclasses.replace(chain.cache, once_flops=once),
        )
        last, every = [False, False, True], [True, True, True]
        assert (profile.step_flops(last), profile.with_cache.step_flops(last)) == (120, 120 - 50)
        assert (profile.step_flops(every), profile.with_cache.step_flops(every)) == (150, 150 - 10)
        assert chain.with_cache.step_flops(last) is None

    def test_a_profile_without_costs_of_a_cache_stays_as_it_is(self):
        profile = random_profile(np.random.default_rng(3), frozen_saving=0.2)
        assert profile.with_cache is profile

    def test_caching_lowers_the_floor(self):
        random = np.random.default_rng(0)
        profile = with_reuse(random_profile(random), random)
        assert profile.with_cache.rho_min < profile.rho_min
        assert profile.with_cache.full_ms == profile.full_ms


def test_saved_profile_loads_the_same(tmp_path):
    flops = CostGroups.from_sets(9, [(), (2,), (0, 1)], [4.0, 2.0, 1.0])
    profile = random_profile(np.random.default_rng(3), frozen_saving=0.2)
    profile = dataclasses.replace(profile, flops=flops)
    profile.save(tmp_path / "p.json")
    loaded = Profile.load(tmp_path / "p.json")
    for key in ("names", "shapes", "metadata", "validation"):
        assert getattr(loaded, key) == getattr(profile, key)
    for key in ("dw", "dy", "forward", "flops"):
        assert list(getattr(loaded, key).sets()) == list(getattr(profile, key).sets())
    for mask in np.eye(9, dtype=bool):
        assert loaded.step_time(mask) == profile.step_time(mask)
    tensors = json.loads((tmp_path / "p.json").read_text())["tensors"]
    np.testing.assert_array_equal([t["t_dy"] for t in tensors], profile.t_dy)


@pytest.mark.parametrize(
    "damage",
    [
        lambda p: p.pop("tensors"),
        lambda p: p.pop("groups"),
        lambda p: p.update(version=99),
        lambda p: p.update(format="something"),
        lambda p: p["tensors"].clear(),
        lambda p: p["tensors"][0].update(t_update=-1.0),
        lambda p: p["groups"]["dy"][0].update(members=[[0, 99]]),
        lambda p: p["groups"]["dy"][0].update(ms=-5.0),
        lambda p: p["groups"]["dy"][0].update(ms="fast"),
    ],
)
def test_damaged_profile_is_refused_by_name(tmp_path, damage):
    path = tmp_path / "p.json"
    random_profile(np.random.default_rng(4)).save(path)
    profile = json.loads(path.read_text())
    damage(profile)
    path.write_text(json.dumps(profile))
    with pytest.raises(UsageError, match="p.json"):
        Profile.load(path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe\x00", b"null", None])
def test_file_that_is_no_profile_is_refused_by_name_and_how_to_make_one_said(tmp_path, content):
    if content is not None:
        (tmp_path / "p.json").write_bytes(content)
    with pytest.raises(UsageError, match="p.json.*et-profile"):
        Profile.load(tmp_path / "p.json")


@pytest.fixture
def with_memory():
    random = np.random.default_rng(0)
    made = with_reuse(random_profile(random, n=5), random, 0.9)
    groups = CostGroups.singletons(np.ones(5))
    return dataclasses.replace(made, memory=StepMemory(groups, groups, 1.0, 0.5, 9.0, 1, groups.scaled(0.0)))


def test_times_grow_by_what_an_example_was_measured_to_take(with_memory):
    profile = with_memory
    profile.metadata["example_ms"] = 0.25 * profile.full_ms
    scaled = profile.for_batch(1, 4)
    mask = np.array([True, False, True, False, False])
    assert scaled.full_ms == pytest.approx(1.75 * profile.full_ms)
    assert scaled.step_time(mask) == pytest.approx(1.75 * profile.step_time(mask))
    assert scaled.validation_errors == pytest.approx(profile.validation_errors)
    # A later run has the scaled profile, of four examples.
    assert scaled.time_ratio(4, 1, 4) == pytest.approx(1.75)
    assert scaled.time_ratio(4, 2, 4) == pytest.approx(1.75 / 1.25)


def test_all_but_the_updates_is_proportional_to_the_examples_where_nothing_was_measured(with_memory):
    profile = with_memory
    update = float(profile.t_update.sum())
    assert 0 < update < profile.full_ms
    expected = update + 4 * (profile.full_ms - update)
    assert profile.for_batch(1, 4).full_ms == pytest.approx(expected)


def test_bytes_are_proportional_to_the_examples(with_memory):
    profile = with_memory
    scaled = profile.for_batch(1, 4)
    assert scaled.cache.cut_mb == pytest.approx(4 * profile.cache.cut_mb)
    assert scaled.memory.batch == 4
    assert scaled.memory.step_bytes(np.array([True, False, True, False, False])) == 1 + 2 + 8
    assert scaled.metadata["measured_examples"] == 1
