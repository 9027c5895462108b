"""The knapsack on the paper's chain of tensors. NumPy only."""

from typing import Any, List, Optional, Tuple

import numpy as np
from numpy.typing import NDArray

_BITS = 62  # tensors of a set that is kept as the bits of one signed integer


def solve_chain(
    t_dw: NDArray[Any],
    t_dy: NDArray[Any],
    importance: NDArray[Any],
    budget: float,
    resolution: int,
    at_depth: Optional[NDArray[Any]] = None,
) -> NDArray[Any]:
    """Find the best selection on a chain within a backward budget.

    Going inwards from the output, best[t] is the largest importance of the tensors passed so far within dW
    time t. With tensor d as the earliest selected one, the answer is importance[d] + best[budget - dy up to d
    - dW of d].

    Args:
        t_dw: (N,) ms, tensor 0 nearest the *output*.
        t_dy: (N,) ms; the entries up to the earliest selected tensor are paid.
        importance: (N,); entries <= 0 are never chosen.
        budget: ms for the backward pass and the updates.
        at_depth: (N,) ms that are paid once, by the earliest selected tensor; None: nothing.
        resolution: cells of time. With so few tensors that no more than this many sums of costs matter, the
            answer is exact (`solve_exactly`); else costs are rounded up (`solve_rounded`).

    Returns:
        (N,) bool mask in the order given.
    """
    if budget <= 0:
        return np.zeros(len(t_dw), bool)
    to_depth = np.cumsum(t_dy) + (0.0 if at_depth is None else at_depth)
    exact = solve_exactly(t_dw, to_depth, importance, budget, resolution)
    return solve_rounded(t_dw, to_depth, importance, budget, resolution) if exact is None else exact


def solve_rounded(
    t_dw: NDArray[Any], to_depth: NDArray[Any], importance: NDArray[Any], budget: float, resolution: int
) -> NDArray[Any]:
    """Solve the chain with costs rounded up to cells of budget / resolution: the budget is never exceeded.

    `to_depth` (N,) ms is paid in addition to dW where a tensor is the earliest selected one.
    """
    mask = np.zeros(len(t_dw), bool)
    unit = budget / resolution
    # The slack of 1e-9 keeps a cost of exactly k units at k, where float division gives k + 1e-16.
    with np.errstate(over="ignore"):  # far more than the budget is infinitely many units
        cells = np.ceil(np.minimum(t_dw / unit, resolution + 1) - 1e-9).astype(np.int64)
    best = np.zeros(resolution + 1)
    shifted = np.empty(resolution + 1)
    passed: List[int] = []
    decisions: List[NDArray[Any]] = []
    # Importance, earliest tensor, cells left, items before it.
    champion: Tuple[float, int, int, int] = (0.0, -1, 0, 0)
    # best[t]: the most importance of the tensors passed so far within t cells of dW time (paper Sec. 3.3).
    # Tensor d as the earliest one pays dy up to d, and its own dW; the rest is for those before it.
    for d in np.flatnonzero(importance > 0):
        left = int(np.floor((budget - to_depth[d]) / unit + 1e-9)) - int(cells[d])
        if left >= 0:
            reached = importance[d] + best[left]
            if reached > champion[0]:
                champion = (reached, int(d), left, len(passed))
        cost = int(cells[d])
        if cost > resolution:
            continue
        # best[t] = max(best[t], best[t - cost] + importance[d]); one bit a cell remembers the choice.
        np.add(best[: resolution + 1 - cost], importance[d], out=shifted[cost:])
        taken = np.zeros(resolution + 1, bool)
        np.greater(shifted[cost:], best[cost:], out=taken[cost:])
        np.copyto(best, shifted, where=taken)
        passed.append(d)
        decisions.append(np.packbits(taken))
    _, earliest, left, items = champion
    if earliest < 0:
        return mask
    # Walk the choices back from the cells that were left for the tensors before the earliest one.
    mask[earliest] = True
    for item in range(items - 1, -1, -1):
        if decisions[item][left >> 3] >> (7 - (left & 7)) & 1:
            mask[passed[item]] = True
            left -= int(cells[passed[item]])
    return mask


def solve_exactly(
    t_dw: NDArray[Any], to_depth: NDArray[Any], importance: NDArray[Any], budget: float, limit: int
) -> Optional[NDArray[Any]]:
    """Solve the chain on unrounded costs: keeps sets that no cheaper one beats; None if more than `limit`."""
    items = np.flatnonzero(importance > 0)
    if len(items) > _BITS:
        return None
    cost, value, chosen = np.zeros(1), np.zeros(1), np.zeros(1, np.int64)
    best_value, best_set = 0.0, 0
    for k, d in enumerate(items):
        # With d as the earliest one: the dearest set before it that the rest of the budget pays is the best,
        # because along the front importance rises with cost.
        affordable = int(np.searchsorted(cost, budget - to_depth[d] - t_dw[d], side="right"))
        if affordable and importance[d] + value[affordable - 1] > best_value:
            best_value = importance[d] + value[affordable - 1]
            best_set = int(chosen[affordable - 1]) | 1 << k
        cost = np.concatenate([cost, cost + t_dw[d]])
        value = np.concatenate([value, value + importance[d]])
        chosen = np.concatenate([chosen, chosen | np.int64(1 << k)])
        # Pareto front: sorted by cost, a set stays if no cheaper one has as much importance.
        order = np.lexsort((-value, cost))
        order = order[cost[order] <= budget]
        best_so_far = np.maximum.accumulate(value[order])
        order = order[np.concatenate([[True], value[order][1:] > best_so_far[:-1]])]
        if len(order) > limit:
            return None
        cost, value, chosen = cost[order], value[order], chosen[order]
    mask = np.zeros(len(t_dw), bool)
    mask[items[[k for k in range(len(items)) if best_set >> k & 1]]] = True
    return mask
