"""What a client does within the time of a round."""

import numpy as np
import pytest

from elastictrainer.fleet.round_work import Device
from elastictrainer.profiler.profile import Profile

# Forward 30 ms; each of four tensors 10 (dW) and 7.5 (dy).
TIMINGS = Profile.from_chain(list("abcd"), 30.0, [10.0] * 4, [7.5] * 4)


SLOW = Device(TIMINGS, slow_down=4.0)


def test_who_has_time_for_all_trains_everything():
    for rule in ("elastic", "full", "drop"):
        work = Device(TIMINGS).work(rule, 5.0, 50, 0.5, 3)
        assert (work.rho, work.steps, work.scored) == (None, 50, 0)


def test_full_training_ignores_the_time_and_drop_leaves_slow_clients_out():
    assert SLOW.full_seconds(50) == pytest.approx(20.0)
    assert SLOW.work("full", 5.0, 50, 0.5, 3).steps == 50
    assert SLOW.work("drop", 5.0, 50, 0.5, 3).steps == 0


@pytest.mark.parametrize("seconds", [1.0, 3.0, 5.0, 12.0, 19.0])
@pytest.mark.parametrize("scored", [0, 3])
@pytest.mark.parametrize("least_rho", [0.1, 0.5, 0.8, 1.0])
def test_an_elastic_client_stays_within_the_round(seconds, scored, least_rho):
    work = SLOW.work("elastic", seconds, 50, least_rho, scored)
    rho = work.rho or 1.0
    assert 0 < work.steps <= 50 and rho >= max(least_rho, TIMINGS.rho_min)
    assert SLOW.scoring_seconds(work.scored) + 0.4 * rho * work.steps <= seconds + 1e-9
    assert work.scored <= scored


def test_all_images_come_first_and_shorter_steps_pay_for_them():
    assert SLOW.work("elastic", 16.0, 50, 0.5, 0).rho == pytest.approx(0.8)
    assert SLOW.work("elastic", 16.0, 50, 0.5, 0).steps == 50
    few = SLOW.work("elastic", 5.0, 50, 0.5, 0)
    assert (few.rho, few.steps) == (0.5, 25)


def test_scoring_takes_a_third_of_a_round_at_most():
    # A minibatch scored: 0.8 s.
    assert SLOW.work("elastic", 5.0, 50, 0.5, 3).scored == 2
    assert SLOW.work("elastic", 2.0, 50, 0.5, 3).scored == 0


def test_seconds_are_those_of_the_profile_times_the_slow_down():
    mask = np.array([False, False, False, True])
    assert Device(TIMINGS, 2.0).seconds(10, mask) == pytest.approx(2e-2 * TIMINGS.step_time(mask))
