"""The knapsack on the paper's chain of tensors. NumPy only."""

from typing import Any, List

import numpy as np
from numpy.typing import NDArray


def solve_chain(
    t_dw: NDArray[Any], to_depth: NDArray[Any], importance: NDArray[Any], budget: float, resolution: int
) -> NDArray[Any]:
    """Find the best selection on a chain within a backward budget (paper Sec. 3.3).

    Going inwards from the output, best[t] is the largest importance of the tensors passed so far within dW
    time t. With tensor d as the earliest selected one, the answer is importance[d] + best[budget -
    to_depth[d] - t_dw[d]].

    Args:
        t_dw: (N,) ms, tensor 0 nearest the *output*.
        to_depth: (N,) ms, paid where the tensor is the earliest selected one: dy of all up to it.
        importance: (N,); entries <= 0 are never chosen.
        budget: ms for the backward pass and the updates.
        resolution: cells of time. Costs are rounded up to a cell, budget / resolution: the budget is never
            exceeded.

    Returns:
        (N,) bool mask in the order given.
    """
    mask = np.zeros(len(t_dw), bool)
    if budget <= 0:
        return mask
    unit = budget / resolution
    # The slack of 1e-9 keeps a cost of exactly k units at k, where float division gives k + 1e-16.
    with np.errstate(over="ignore"):  # far more than the budget is infinitely many units
        cells = np.ceil(np.minimum(t_dw / unit, resolution + 1) - 1e-9).astype(np.int64)
    best = np.zeros(resolution + 1)
    shifted = np.empty(resolution + 1)
    passed: List[int] = []
    decisions: List[NDArray[Any]] = []
    # Of the best selection so far: importance, earliest tensor, cells and passed tensors left for the others.
    most, earliest, cells_left, others = 0.0, -1, 0, 0
    for d in np.flatnonzero(importance > 0):
        left = int(np.floor((budget - to_depth[d]) / unit + 1e-9)) - int(cells[d])
        if left >= 0:
            reached = importance[d] + best[left]
            if reached > most:
                most, earliest, cells_left, others = reached, int(d), left, len(passed)
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
    if earliest < 0:
        return mask
    # Walk the choices back from the cells that were left for the tensors before the earliest one.
    mask[earliest] = True
    for item in range(others - 1, -1, -1):
        if decisions[item][cells_left >> 3] >> (7 - (cells_left & 7)) & 1:
            mask[passed[item]] = True
            cells_left -= int(cells[passed[item]])
    return mask
