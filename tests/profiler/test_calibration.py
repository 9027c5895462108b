"""A traced profile, corrected by the measured times of a few selections. No TensorFlow."""

import dataclasses

import numpy as np
import pytest

from builders import random_profile
from cache_builders import reusable_chain, with_reuse
from elastictrainer.profiler.calibration import (
    calibrated,
    cheapest,
    earliest,
    middle,
    with_calibrated_cache,
    with_overlap,
)
from elastictrainer.profiler.profile import Profile


def traced(seed):
    """A profile as a trace gives it: dy work along a chain from the output to the input, and in branches."""
    profile = random_profile(np.random.default_rng(seed), n=9)
    chain = Profile.from_chain(profile.names, 1.0, np.ones(9), np.linspace(1, 3, 9))
    return dataclasses.replace(profile, dy=profile.dy.scaled(0.2).joined(chain.dy), overlap=0.0)


def measured(true, profile):
    """The two ratios that a device would show on which `true` holds."""
    return [true.step_time(mask) / true.full_ms for mask in (cheapest(profile), earliest(profile))]


@pytest.mark.parametrize("overlap", [-0.3, 0.0, 0.4])
@pytest.mark.parametrize("seed", range(2))
def test_calibrated_finds_overlap_and_frozen_saving(overlap, seed):
    profile = traced(seed)
    true = dataclasses.replace(with_overlap(profile, overlap), frozen_saving=0.3)
    corrected = calibrated(profile, *measured(true, profile))
    assert corrected.overlap == pytest.approx(overlap, abs=1e-3) and corrected.frozen_saving == pytest.approx(
        0.3, abs=1e-3
    )
    for mask in np.random.default_rng(seed).random((20, 9)) < 0.4:
        assert corrected.step_time(mask) == pytest.approx(true.step_time(mask), rel=1e-3)


def test_calibrated_leaves_the_full_step_as_it_was(tmp_path):
    profile = traced(0)
    corrected = calibrated(profile, 0.3, 0.8)
    assert corrected.overlap and corrected.full_ms == pytest.approx(profile.full_ms)
    assert corrected.step_time(np.ones(9, bool)) == pytest.approx(profile.full_ms)
    corrected.save(tmp_path / "profile.json")
    assert Profile.load(tmp_path / "profile.json").overlap == corrected.overlap


def test_earliest_needs_most_dy_work_and_little_dw_work():
    chain = Profile.from_chain(list("abcd"), 1.0, [9.0, 0.1, 1.0, 1.0], [1.0, 2.0, 3.0, 4.0])
    # b needs 1 ms of dy less than a, and 8.9 ms of dW less.
    assert earliest(chain).tolist() == [False, True, False, False]
    assert cheapest(chain).tolist() == [False, False, False, True]
    lost = dataclasses.replace(chain, connected=np.array([True, False, True, True]))
    assert not earliest(lost)[1]


@pytest.mark.parametrize("ratios", [(0.0, 0.0), (1.0, 0.0), (0.0, 3.0), (2.0, 2.0)])
def test_calibrated_by_impossible_ratios_has_no_negative_time(ratios):
    corrected = calibrated(traced(1), *ratios)
    times = np.concatenate([corrected.dw.amount, corrected.dy.amount, corrected.t_update])
    assert (
        np.all(times >= 0)
        and 0 <= corrected.frozen_saving <= 0.9
        and corrected.full_ms == pytest.approx(traced(1).full_ms)
    )


def test_one_tensor_has_no_overlap():
    alone = Profile.from_chain(["a"], 1.0, [1.0], [1.0])
    assert calibrated(alone, 1.0, 1.0).overlap == 0.0


def kinds_of(profile, mask):
    """The ratios that the profile predicts of a whole step, a cache write and a cached step."""
    times = profile.step_time(mask), profile.cache_write_time(mask), profile.with_cache.step_time(mask)
    return [ms / profile.full_ms for ms in times]


@pytest.mark.parametrize("seed", range(2))
def test_calibrated_reuse_finds_write_and_read_costs_whatever_the_whole_step_takes(seed):
    chain = Profile.from_chain("abcdefg", 3.0, *np.random.default_rng(seed).random((2, 7)))
    profile = reusable_chain(chain)
    costs = dict.fromkeys(("write_ms", "write_ms_per_mb", "read_ms", "read_ms_per_mb"), 1e-3)
    costs = dataclasses.replace(profile.cache, **costs)
    profile = dataclasses.replace(profile, cache=costs)
    mask = middle(profile)
    slower = 0.4 * (
        1 - profile.with_cache.step_time(mask) / profile.step_time(mask)
    )  # it is worth while still
    true = dataclasses.replace(profile, cache=dataclasses.replace(costs, write_ms=0.011, slower=slower))
    assert profile.with_cache.step_time(mask) < true.with_cache.step_time(mask) < profile.step_time(mask)
    plain, cache_write, cached = kinds_of(true, mask)
    ratios = plain + 0.1, cache_write, cached + 0.1
    short = true.with_cache.step_time(cheapest(profile)) / true.full_ms
    found = with_calibrated_cache(profile, *ratios, short).cache
    assert (found.write_ms, found.slower, found.read_ms) == pytest.approx((0.011, slower, 1e-3))


@pytest.mark.parametrize("called_ms", [-0.2, 0.0, 0.3])
@pytest.mark.parametrize("slower", [0.0, 0.1])
def test_calibrated_reuse_predicts_cached_steps_of_any_depth(called_ms, slower):
    """A constant per step, and a share that grows with the tensors that train."""
    profile = with_reuse(reusable_chain(Profile.from_chain("abcdef", 6.0, np.ones(6), np.ones(6))))
    assert next(profile.forward.sets()) == ([], 1.0), "what each step has, and a cached one has less of"
    once = profile.forward.rows(profile.forward.has_members())
    profile = dataclasses.replace(profile, cache=dataclasses.replace(profile.cache, once=once))

    def cached_ms(mask):
        reading = profile.with_cache.reading_ms[mask.argmax()]
        ms = (
            profile.with_cache.step_time(mask)
            - called_ms
            + slower * (profile.with_cache.step_time(mask) - reading)
        )
        return min(ms, profile.step_time(mask))  # what does not pay is done in every step

    inside, short = middle(profile), cheapest(profile)
    plain, cache_write, _ = kinds_of(profile, inside)
    measured_ratios = plain, cache_write, cached_ms(inside) / profile.full_ms
    found = with_calibrated_cache(profile, *measured_ratios, cached_ms(short) / profile.full_ms)
    for k in range(1, 6):  # at depth 0 nothing is left to be done once
        mask = np.arange(6) == k
        assert found.with_cache.step_time(mask) == pytest.approx(cached_ms(mask)), k
        assert found.step_time(mask) == pytest.approx(profile.step_time(mask))
    assert found.cache.read_ms >= 0 and found.full_ms == profile.full_ms


def test_calibrated_reuse_slows_a_cached_step_by_a_share_of_its_own_work():
    chain = Profile.from_chain("abcd", 1.0, [1.0, 1.0, 1.0, 1.0], [0.0, 2.0, 2.0, 0.0])
    profile = with_reuse(chain)
    slower = dataclasses.replace(profile, cache=dataclasses.replace(profile.cache, slower=0.1))
    for k, work in enumerate((5.0, 5.0, 3.0, 1.0)):
        mask = np.arange(4) == k
        assert slower.with_cache.step_time(mask) - profile.with_cache.step_time(mask) == pytest.approx(
            0.1 * work
        )
        assert slower.cache_write_time(mask) == profile.cache_write_time(mask)


def test_calibrated_reuse_has_no_negative_cost():
    profile = with_reuse(random_profile(np.random.default_rng(0)))
    plain, _, _ = kinds_of(profile, middle(profile))
    found = with_calibrated_cache(profile, plain, 0.0, 0.0, 0.0)
    assert found.cache.write_ms == found.cache.read_ms == 0 and found.with_cache.forward_ms > -1e-9
