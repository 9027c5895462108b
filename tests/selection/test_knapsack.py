"""The knapsack on the chain, against brute force and against its own exact form. No TensorFlow."""

import itertools

import numpy as np
import pytest

from elastictrainer.selection.knapsack import solve_chain, solve_exactly, solve_rounded


def test_rounded_knapsack_is_exact_where_costs_are_whole_cells():
    random = np.random.default_rng(1)
    for _ in range(300):
        n = int(random.integers(1, 9))
        t_dw, t_dy = random.integers(0, 20, n).astype(float), random.integers(0, 20, n).astype(float)
        importance = random.integers(-5, 20, n) / 7.0
        budget = int(random.integers(1, 120))
        mask = solve_rounded(t_dw, np.cumsum(t_dy), importance, float(budget), budget)
        masks = np.array(list(itertools.product([False, True], repeat=n)))
        paid = [t_dw[m].sum() + (t_dy[: np.flatnonzero(m)[-1] + 1].sum() if m.any() else 0) for m in masks]
        assert importance[mask].sum() == pytest.approx(
            max(importance[m].sum() for m, c in zip(masks, paid) if c <= budget)
        )


def test_rounded_knapsack_never_exceeds_the_budget_and_comes_close():
    random = np.random.default_rng(2)
    ratios = []
    for _ in range(100):
        t_dw, t_dy, importance = random.random((3, 40))
        budget = random.uniform(2, 20)
        exact = solve_exactly(t_dw, np.cumsum(t_dy), importance, budget, 10**6)
        rounded = solve_rounded(t_dw, np.cumsum(t_dy), importance, budget, 10_000)
        assert t_dw[rounded].sum() + t_dy[: np.flatnonzero(rounded)[-1] + 1].sum() <= budget
        ratios.append(importance[rounded].sum() / importance[exact].sum())
    assert max(ratios) <= 1 + 1e-9 and np.mean(ratios) > 0.999


def test_the_published_solvers_missing_case_is_found():
    # The best answer skips a cheap tensor near the output for a costly one behind it, down to the innermost
    # tensor.
    mask = solve_chain(np.array([1.0, 1.0, 3.0]), np.zeros(3), np.array([1.0, 2.0, 9.0]), 4.0, 4)
    assert mask.tolist() == [False, True, True]


@pytest.mark.parametrize("solve", [solve_exactly, solve_rounded])
def test_both_forms_skip_a_tensor_of_no_importance(solve):
    mask = solve(np.ones(3), np.ones(3), np.array([0.0, 1.0, -1.0]), 10.0, 100)
    assert mask.tolist() == [False, True, False]


def test_many_tensors_are_left_to_the_rounded_form():
    random = np.random.default_rng(5)
    t_dw, t_dy, importance = random.random((3, 100))
    assert solve_exactly(t_dw, np.cumsum(t_dy), importance, 10.0, 10**6) is None
    np.testing.assert_array_equal(
        solve_chain(t_dw, t_dy, importance, 10.0, 1000),
        solve_rounded(t_dw, np.cumsum(t_dy), importance, 10.0, 1000),
    )


def test_more_sums_of_costs_than_the_limit_are_left_to_the_rounded_form():
    t_dw, t_dy, importance = np.random.default_rng(6).random((3, 30))
    assert solve_exactly(t_dw, np.cumsum(t_dy), importance, 10.0, 3) is None


@pytest.mark.parametrize("budget", [0.0, -1.0])
def test_without_a_budget_nothing_is_selected(budget):
    assert not solve_chain(np.zeros(2), np.zeros(2), np.ones(2), budget, 10).any()
