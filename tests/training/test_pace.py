"""The pace of a device."""

import pytest

from elastictrainer.training.pace import Pace


def test_a_device_of_half_the_speed_has_a_slowdown_of_two_whatever_its_steps_train():
    pace = Pace()
    for _ in range(20):
        assert not pace.add(150.0, 0.2), "nothing to compare with yet"
        assert pace.slowdown == 1.0
    changed = [pace.add(600.0, 0.4) for _ in range(60)]
    assert [k for k, has in enumerate(changed) if has] == [19, 39, 59]
    assert pace.slowdown == pytest.approx(2.0)


def test_a_faster_device_has_none():
    pace = Pace()
    for ms in [1000.0] * 20 + [500.0] * 20:
        pace.add(ms, 1.0)
    assert pace.slowdown == 1.0


def test_a_process_that_comes_and_goes_is_not_a_slower_device():
    pace, found = Pace(), []
    for ms in [150.0] * 40 + [300.0] * 40 + [150.0] * 60:
        pace.add(ms, 1.0)
        found.append(pace.slowdown)
    assert max(found) == 1.0


def test_a_moment_in_which_another_process_runs_is_not_a_slower_device():
    """Steps of 5 ms, of which each fiftieth waits for a turn of 100 ms."""
    pace, found = Pace(), []
    for step in range(5000):
        if pace.add(105.0 if step % 50 == 0 else 5.0, 1.0):
            found.append(pace.slowdown)
    assert len(found) > 5 and max(found) < 1.1
