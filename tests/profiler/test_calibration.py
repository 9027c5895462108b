"""What the clock says of two selections, put into a profile made from a trace."""

import dataclasses

import numpy as np
import pytest

from builders import random_timings
from elastictrainer.profiler.calibration import calibrated, cheapest, deepest, with_overlap
from elastictrainer.profiler.timings import TensorTimings


def traced(seed):
    """A profile as a trace gives it: dy work along a chain from the output to the input, and in branches."""
    timings = random_timings(np.random.default_rng(seed), n=9)
    chain = TensorTimings.from_chain(timings.names, 1.0, np.ones(9), np.linspace(1, 3, 9))
    return dataclasses.replace(timings, dy=timings.dy.scaled(0.2).joined(chain.dy), overlap=0.0)


def measured(true, timings):
    """The two ratios that a device would show on which `true` holds."""
    return [true.step_time(mask) / true.full_ms for mask in (cheapest(timings), deepest(timings))]


@pytest.mark.parametrize("overlap", [-0.3, 0.0, 0.4])
@pytest.mark.parametrize("seed", range(5))
def test_what_is_true_of_a_device_is_found_from_two_selections(overlap, seed):
    timings = traced(seed)
    true = dataclasses.replace(with_overlap(timings, overlap), frozen_saving=0.3)
    found = calibrated(timings, *measured(true, timings))
    assert found.overlap == pytest.approx(overlap, abs=1e-3) and found.frozen_saving == pytest.approx(
        0.3, abs=1e-3
    )
    for mask in np.random.default_rng(seed).random((20, 9)) < 0.4:
        assert found.step_time(mask) == pytest.approx(true.step_time(mask), rel=1e-3)


def test_the_full_step_takes_what_it_took(tmp_path):
    timings = traced(0)
    found = calibrated(timings, 0.3, 0.8)
    assert found.overlap and found.full_ms == pytest.approx(timings.full_ms)
    assert found.step_time(np.ones(9, bool)) == pytest.approx(timings.full_ms)
    found.save(tmp_path / "profile.json")
    assert TensorTimings.load(tmp_path / "profile.json").overlap == found.overlap


def test_the_deepest_tensor_needs_most_of_the_way_and_is_no_large_one():
    chain = TensorTimings.from_chain(list("abcd"), 1.0, [9.0, 0.1, 1.0, 1.0], [1.0, 2.0, 3.0, 4.0])
    assert deepest(chain).tolist() == [
        False,
        True,
        False,
        False,
    ]  # 1 ms less of the way, and 8.9 ms less of its own
    assert cheapest(chain).tolist() == [False, False, False, True]
    lost = dataclasses.replace(chain, connected=np.array([True, False, True, True]))
    assert not deepest(lost)[1]


@pytest.mark.parametrize("ratios", [(0.0, 0.0), (1.0, 0.0), (0.0, 3.0), (2.0, 2.0)])
def test_a_clock_that_says_nonsense_leaves_no_time_negative(ratios):
    found = calibrated(traced(1), *ratios)
    times = np.concatenate([found.dw.amount, found.dy.amount, found.t_update])
    assert (
        np.all(times >= 0)
        and 0 <= found.frozen_saving <= 0.9
        and found.full_ms == pytest.approx(traced(1).full_ms)
    )


def test_one_tensor_leaves_nothing_to_find():
    alone = TensorTimings.from_chain(["a"], 1.0, [1.0], [1.0])
    assert calibrated(alone, 1.0, 1.0).overlap == 0.0
