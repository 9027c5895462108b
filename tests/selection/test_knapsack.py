"""The knapsack on the chain, against brute force. No TensorFlow."""

import itertools

import numpy as np
import pytest

from elastictrainer.selection.knapsack import solve_chain


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


def test_solve_chain_never_exceeds_the_budget_and_comes_close():
    random = np.random.default_rng(2)
    ratios = []
    for _ in range(50):
        t_dw, t_dy, importance = random.random((3, 12))
        budget = random.uniform(1, 8)
        mask = solve_chain(t_dw, np.cumsum(t_dy), importance, budget, 10_000)
        masks, paid = masks_and_costs(t_dw, t_dy)
        assert paid[(masks == mask).all(axis=1)] <= budget
        ratios.append(importance[mask].sum() / max((masks @ importance)[paid <= budget].max(), 1e-9))
    assert max(ratios) <= 1 + 1e-9 and np.mean(ratios) > 0.999


def test_solve_chain_takes_depth_costs_that_do_not_rise_inwards():
    # The second tensor as the earliest one costs 5, the third 1: so both fit together only with the third.
    to_depth, importance = np.array([0.0, 5.0, 1.0]), np.array([1.0, 2.0, 0.5])
    assert solve_chain(np.ones(3), to_depth, importance, 4.0, 4).tolist() == [True, True, True]
    assert solve_chain(np.ones(3), to_depth, importance, 3.0, 3).tolist() == [False, True, True]


def test_the_published_solvers_missing_case_is_found():
    # The best answer skips a cheap tensor near the output for a costly one behind it, down to the innermost
    # tensor.
    mask = solve_chain(np.array([1.0, 1.0, 3.0]), np.zeros(3), np.array([1.0, 2.0, 9.0]), 4.0, 4)
    assert mask.tolist() == [False, True, True]


def test_a_tensor_of_no_importance_is_skipped():
    mask = solve_chain(np.ones(3), np.arange(1.0, 4), np.array([0.0, 1.0, -1.0]), 10.0, 100)
    assert mask.tolist() == [False, True, False]


@pytest.mark.parametrize("budget", [0.0, -1.0])
def test_without_a_budget_nothing_is_selected(budget):
    assert not solve_chain(np.zeros(2), np.zeros(2), np.ones(2), budget, 10).any()
