"""The exact solver on the cost groups, against brute force. No TensorFlow."""

import numpy as np
import pytest

from builders import best_by_brute_force, random_timings
from elastictrainer import TensorTimings, select
from elastictrainer.selection.milp import solve_groups


def test_milp_is_exact_on_500_random_group_models():
    random = np.random.default_rng(2)
    for k in range(500):
        n = int(random.integers(2, 8))
        timings = random_timings(random, n=n, groups=6, frozen_saving=0.3 * (k % 2))
        importance = random.normal(0.5, 1, n)
        rho = random.uniform(timings.rho_min, 1)
        selection = select(timings, importance, rho, solver="milp")
        assert selection.step_ms <= rho * timings.full_ms * (1 + 1e-11)
        assert selection.importance == pytest.approx(
            max(best_by_brute_force(timings, importance, rho), 0.0), abs=1e-9
        )


def test_a_tensor_that_may_not_train_is_left_out():
    timings = TensorTimings.from_chain(list("abc"), 1.0, [1.0, 1.0, 1.0], [1.0, 1.0, 1.0])
    mask = solve_groups(timings, np.array([5.0, 1.0, 9.0]), np.array([True, True, False]), 5.0)
    assert mask.tolist() == [True, False, False]  # a takes 1 ms forward, 1 ms dW and 3 ms dy
