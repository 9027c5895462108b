"""The pace of a device."""

import pytest

from elastictrainer.training.pace import Pace


def test_a_device_of_half_the_speed_has_a_slowdown_of_two_whatever_its_steps_train():
    pace = Pace()
    assert pace.slowdown == 1.0
    for _ in range(20):
        assert not pace.add(10.0, 0.2), "nothing to compare with yet"
    changed = [pace.add(40.0, 0.4) for _ in range(40)]
    assert [k for k, has in enumerate(changed) if has] == [19, 39]
    assert pace.slowdown == pytest.approx(2.0)


def test_a_faster_device_has_none():
    pace = Pace()
    for ms in [10.0] * 20 + [5.0] * 20:
        pace.add(ms, 1.0)
    assert pace.slowdown == 1.0
