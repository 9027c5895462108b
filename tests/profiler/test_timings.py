import dataclasses

import numpy as np
import pytest

from builders import random_timings
from elastictrainer import TensorTimings, UsageError, select
from elastictrainer.profiler.cost_groups import CostGroups
from reuse_builders import with_reuse


def chain(t_dw=(1.0, 2.0, 4.0), t_dy=(0.5, 0.25, 0.125), forward_ms=3.0):
    return TensorTimings.from_chain([f"w{i}" for i in range(len(t_dw))], forward_ms, t_dw, t_dy)


def test_chain_pays_dy_of_every_tensor_from_the_output_down_to_the_deepest_selected():
    timings = chain()
    assert timings.step_time([False, False, False]) == 3.0
    assert timings.step_time([False, False, True]) == 3.0 + 0.125 + 4.0
    assert timings.step_time([False, True, False]) == 3.0 + 0.125 + 0.25 + 2.0
    assert timings.step_time([True, False, True]) == 3.0 + 0.125 + 0.25 + 0.5 + 1.0 + 4.0
    assert timings.full_ms == timings.step_time([True] * 3) == 3.0 + 7.0 + 0.875


def test_chain_keeps_the_arrays_it_was_made_from():
    timings = chain()
    np.testing.assert_array_equal(timings.t_dw, [1.0, 2.0, 4.0])
    np.testing.assert_array_equal(timings.t_dy, [0.5, 0.25, 0.125])
    np.testing.assert_array_equal(timings.order, [2, 1, 0])
    assert timings.forward_ms == 3.0


def test_rho_min_is_the_cheapest_single_tensor():
    timings = chain()
    singles = [timings.step_time(np.arange(3) == i) for i in range(3)]
    assert timings.rho_min == min(singles) / timings.full_ms


@pytest.mark.parametrize(
    "t_dw, t_dy", [([1.0], [1.0, 2.0]), ([1.0, -1.0], [0.0, 0.0]), ([1.0, np.inf], [0.0, 0.0])]
)
def test_chain_refuses_malformed_times(t_dw, t_dy):
    with pytest.raises(UsageError):
        TensorTimings.from_chain(["a", "b"], 1.0, t_dw, t_dy)


@pytest.mark.parametrize("frozen_saving", [0.0, 0.3])
def test_step_time_is_the_forward_pass_plus_groups_with_a_selected_member(frozen_saving):
    random = np.random.default_rng(0)
    for _ in range(20):
        timings = random_timings(random, frozen_saving=frozen_saving)
        mask = random.random(9) < 0.4
        selected = set(np.flatnonzero(mask))
        groups = [*timings.dw.sets(), *timings.shared.sets()]
        expected = timings.forward_ms + sum(ms for members, ms in groups if selected & set(members))
        assert timings.step_time(mask) == pytest.approx(expected + timings.t_update[mask].sum())


def test_frozen_forward_work_is_cheaper_and_the_full_step_is_not():
    random_a, random_b = np.random.default_rng(1), np.random.default_rng(1)
    plain, frozen = random_timings(random_a), random_timings(random_b, frozen_saving=0.5)
    assert frozen.full_ms == pytest.approx(plain.full_ms) == pytest.approx(frozen.step_time(np.ones(9, bool)))
    nothing = np.zeros(9, bool)
    without_members = plain.forward.amount[0]
    assert frozen.step_time(nothing) == pytest.approx(
        without_members + 0.5 * (plain.step_time(nothing) - without_members)
    )
    np.testing.assert_allclose(plain.t_dy, frozen.t_dy)


@pytest.mark.parametrize("frozen_saving", [0.0, 0.4])
def test_chain_never_promises_less_time_than_the_groups(frozen_saving):
    random = np.random.default_rng(2)
    for _ in range(100):
        timings = random_timings(random, frozen_saving=frozen_saving)
        mask = random.random(9) < random.random()
        assert timings.chain_time(mask) >= timings.step_time(mask) - 1e-12
    assert timings.chain_time(np.ones(9, bool)) == pytest.approx(timings.full_ms)


def test_mask_of_another_length_is_refused():
    with pytest.raises(UsageError, match=r"\(3,\)"):
        chain().step_time([True])


def test_core_and_plots_import_no_tensorflow():
    import subprocess
    import sys

    code = (
        "import sys; from elastictrainer import TensorTimings, select; "
        "import elastictrainer.plotting.report, elastictrainer.profiler.storage, "
        "elastictrainer.profiler.attribution, elastictrainer.profiler.xplane, "
        "elastictrainer.selection.budget; "
        "sys.exit('tensorflow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_smallest_ratio_is_never_above_one():
    """With one tensor the cheapest selection is the full step, whichever way the sums are rounded."""
    random = np.random.default_rng(0)
    for _ in range(200):
        chain = TensorTimings.from_chain(["only"], 1.0, [random.random()], [random.random()])
        forward = CostGroups.from_sets(1, [(), (0,)], random.random(2))
        timings = dataclasses.replace(
            chain, forward=forward, frozen_saving=random.random(), t_update=random.random(1)
        )
        assert timings.rho_min <= 1
        assert select(timings, [1.0], 1.0).mask.all()


class TestFrozenWorkDoneOnce:
    """The mean step of an interval that writes the cache in its first epoch, and reads it in the others."""

    @pytest.mark.parametrize("seed", range(5))
    def test_a_replayed_step_leaves_out_what_was_recorded_unless_reading_takes_longer(self, seed):
        random = np.random.default_rng(seed)
        timings = with_reuse(random_timings(random, frozen_saving=0.2), random, 0.8)
        mask = random.random(len(timings)) < 0.4
        mask[timings.order[0]] = True
        earliest = timings.order[mask[timings.order]][-1]
        reading_ms = min(timings.reuse.cache_read_ms[earliest], timings.saved_ms[earliest])
        once = timings.reuse.once
        done = ~once.active_groups(mask) & once.has_members()
        done_ms = (1 - timings.frozen_saving) * once.amount[done].sum() + once.amount[
            ~once.has_members()
        ].sum()
        assert timings.cached_step_time(mask) == pytest.approx(timings.step_time(mask) - done_ms + reading_ms)
        cache_write_ms = timings.saved_ms[earliest] + timings.reuse.cache_write_ms[earliest]
        assert timings.cache_write_time(mask) == pytest.approx(cache_write_ms)

    def test_by_hand(self):
        timings = with_reuse(TensorTimings.from_chain("abc", 6.0, [1, 1, 1], [1, 1, 1]))
        timings = dataclasses.replace(
            timings,
            forward=CostGroups.from_sets(3, [(), (0,), (0, 1), (0, 1, 2)], [1.0, 2.0, 2.0, 1.0]),
            reuse=dataclasses.replace(
                timings.reuse, once=CostGroups.from_sets(3, [(), (0,), (0, 1)], [0.5, 2.0, 2.0])
            ),
        )
        last = [False, False, True]
        # A step: 6 forward, dW 1, dy 1. Replay: without 4.5 of the forward pass; 0.01 + 0.03 to read 1 MB.
        assert timings.step_time(last) == pytest.approx(8)
        assert timings.cached_step_time(last) == pytest.approx(8 - 4.5 + 0.04)
        assert timings.cache_write_time(last) == pytest.approx(4.5 + 0.07)
        middle = [False, True, True]
        assert timings.cached_step_time(middle) == pytest.approx(6 + 2 + 2 - 2.5 + 0.04)

    def test_a_profile_without_costs_of_recording_stays_as_it_is(self):
        timings = random_timings(np.random.default_rng(3), frozen_saving=0.2)
        assert timings.with_cache is timings

    def test_replaying_lowers_the_floor(self):
        random = np.random.default_rng(0)
        timings = with_reuse(random_timings(random), random)
        assert timings.with_cache.rho_min < timings.rho_min
        assert timings.with_cache.full_ms == timings.full_ms
