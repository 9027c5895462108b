"""A traced profile, corrected by the measured times of a few selections, on a simulated machine."""

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
    random_masks,
    ratios_to_full,
    with_calibrated_cache,
    with_overlap,
)
from elastictrainer.profiler.profile import Profile
from elastictrainer.steps.timing import SETTLED


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
    found = corrected.overlap, corrected.frozen_saving
    assert found == pytest.approx((overlap, 0.3), abs=1e-3)
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
    assert np.all(times >= 0) and 0 <= corrected.frozen_saving <= 0.9
    assert corrected.full_ms == pytest.approx(traced(1).full_ms)


def test_one_tensor_has_no_overlap():
    alone = Profile.from_chain(["a"], 1.0, [1.0], [1.0])
    assert calibrated(alone, 1.0, 1.0).overlap == 0.0


def kinds_of(profile, mask):
    """The ratios that the profile predicts of a whole step, a cache write and a cached step."""
    times = profile.step_time(mask), profile.cache_write_time(mask), profile.with_cache.step_time(mask)
    return [ms / profile.full_ms for ms in times]


@pytest.mark.parametrize("called_ms", [-0.2, 0.0, 0.3])
@pytest.mark.parametrize("slower", [0.0, 0.1])
def test_calibrated_reuse_predicts_writes_and_cached_steps_of_any_depth_whatever_the_whole_step_takes(
    called_ms, slower
):
    """A constant per step, and a share that grows with the tensors that train."""
    profile = with_reuse(reusable_chain(Profile.from_chain("abcdef", 6.0, np.ones(6), np.ones(6))))
    assert next(profile.forward.sets()) == ([], 1.0), "what each step has, and a cached one has less of"
    once = profile.forward.rows(profile.forward.has_members())
    profile = dataclasses.replace(profile, cache=dataclasses.replace(profile.cache, once=once))

    def cached_ms(mask):
        ms, reading_ms = profile.with_cache.step_time(mask), profile.with_cache.reading_ms[mask.argmax()]
        # What does not pay is done in every step.
        return min(ms - called_ms + slower * (ms - reading_ms), profile.step_time(mask))

    inside, short = middle(profile), cheapest(profile)
    plain, cache_write, _ = kinds_of(profile, inside)
    # The whole step takes longer than predicted, and the cached one as much longer; writing as well.
    measured_ratios = plain + 0.1, cache_write + 0.05, cached_ms(inside) / profile.full_ms + 0.1
    found = with_calibrated_cache(profile, *measured_ratios, cached_ms(short) / profile.full_ms)
    if called_ms <= 0:  # otherwise the write is predicted with what each step is spared
        assert found.cache_write_time(inside) == pytest.approx((cache_write + 0.05) * profile.full_ms)
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
        added_ms = slower.with_cache.step_time(mask) - profile.with_cache.step_time(mask)
        assert added_ms == pytest.approx(0.1 * work)
        assert slower.cache_write_time(mask) == profile.cache_write_time(mask)


def test_calibrated_reuse_has_no_negative_cost():
    profile = with_reuse(random_profile(np.random.default_rng(0)))
    plain, _, _ = kinds_of(profile, middle(profile))
    found = with_calibrated_cache(profile, plain, 0.0, 0.0, 0.0)
    assert found.cache.write_ms == found.cache.read_ms == 0 and found.with_cache.forward_ms > -1e-9


FULL, CHOSEN = np.array([True, True]), np.array([True, False])


class Warm:
    """A step that has run often enough."""

    runs = SETTLED

    def __init__(self, mask):
        self.mask = mask


class Machine:
    """A cache of steps, and their clock: a step takes what `ms_of(round, mask)` says.

    Before the first round one full step is timed, to see how long it takes.
    """

    def __init__(self, ms_of):
        self.now_s, self.turns = 0.0, -1
        self.ms_of = ms_of

    def ratios(self, rounds, **options):
        self.turns = -1
        options.update(seconds=0.0, rounds=rounds, timed=self.step_ms)
        return ratios_to_full(self.get, [CHOSEN], FULL, None, **options)

    def get(self, mask):
        return Warm(mask)

    @property
    def round(self):
        return max(self.turns, 0) // 2

    def step_ms(self, step, batch, count):
        took = np.full(count, float(self.ms_of(self.round, step.mask)))
        self.now_s += 1e-3 * took.sum()
        self.turns += 1
        return took


def test_ratios_to_full_runs_the_rounds_asked_for():
    machine = Machine(lambda k, mask: 100 if mask.all() else 40)
    assert machine.ratios(3) == pytest.approx([0.4]) and machine.round == 3


def test_a_caller_may_choose_the_rounds_that_count():
    machine = Machine(lambda k, mask: 100 if mask.all() else 80 if k < 5 else 40)

    def last(measure, rounds):
        return [measure() for _ in range(8)][-rounds:]

    assert machine.ratios(3, repeat=last) == pytest.approx([0.4]) and machine.round == 8


def test_a_few_fast_steps_and_many_slow_ones_do_not_count():
    def ms_of(k, mask):  # now the one turn is lucky or disturbed, now the other
        full_ms = 70 if k % 12 == 3 else 200 if k % 12 in (1, 4, 7, 10) else 100
        return full_ms if mask.all() else 0.4 * (60 if k % 12 == 8 else 150 if k % 12 in (0, 4, 6) else 100)

    assert Machine(ms_of).ratios(12) == pytest.approx([0.4])


def test_a_speed_that_changes_within_seconds_slows_both_alike():
    # Slower by two fifths in every other stretch of 2.3 s: four of these steps in a row would be all in one
    # stretch.
    def ms_of(k, mask):
        return (500 if mask.all() else 200) * (1.4 if machine.now_s % 4.6 > 2.3 else 1.0)

    machine = Machine(ms_of)
    ratios = [machine.ratios(6)[0] for _ in range(12)]
    assert ratios == pytest.approx([0.4] * 12, rel=0.12) and np.mean(ratios) == pytest.approx(0.4, rel=0.03)


TIMINGS = Profile.from_chain([f"w{k}" for k in range(12)], 1.0, np.ones(12), np.ones(12))


def test_random_selections_are_of_every_depth_and_density_of_what_can_be_trained():
    masks = random_masks(TIMINGS, 200, seed=0)
    assert {int(np.flatnonzero(mask)[0]) for mask in masks} == set(range(12))  # tensor 0 is the deepest
    density = [mask[np.flatnonzero(mask)[0] :].mean() for mask in masks if mask.sum() > 3]
    assert min(density) < 0.5 and max(density) == 1.0
    connected = np.arange(12) % 3 > 0
    for mask in random_masks(dataclasses.replace(TIMINGS, connected=connected), 50, seed=0):
        assert mask.any() and not mask[~connected].any()
    first, again, other = (random_masks(TIMINGS, 5, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
