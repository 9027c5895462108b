"""The tensor selector: the most importance within a time budget. NumPy, and SciPy for the exact solver."""

from dataclasses import dataclass
from typing import Optional, Sequence, Tuple

import numpy as np

from elastictrainer.errors import UsageError, unknown
from elastictrainer.profiler.timings import TensorTimings

SOLVERS = ("dp", "milp")
_LARGEST = 1e100  # an importance that still can be added and divided


@dataclass(frozen=True)
class Selection:
    """Which tensors to train.

    Attributes:
        mask: (N,) bool, in the order of `model.trainable_weights`.
        step_ms: predicted time of a step under the mask.
        importance: summed importance of the mask.
    """

    mask: np.ndarray
    step_ms: float
    importance: float


def select(
    timings: TensorTimings,
    importance: Sequence[float],
    rho: float,
    solver: str = "dp",
    resolution: int = 10_000,
) -> Selection:
    """Choose the tensors with the largest summed importance whose step takes at most `rho` of the full step.

    Maximises sum(importance[i] for selected i) subject to `timings.step_time(mask) <= rho * timings.full_ms` (paper
    Sec. 3.3). Tensors of importance zero or less are never selected; where none is positive the mask is empty.

    Args:
        timings: the profile, N tensors.
        importance: (N,) larger is better, in the order of `model.trainable_weights`.
        rho: requested step time over the full step's, in [timings.rho_min, 1].
        solver: "dp": one knapsack on the chain model, exact there up to costs rounded up to 1 / resolution of the
            budget; what the chain overestimates is then spent by the cost groups. "milp": exact on the cost groups.
        resolution: cells of time of the knapsack.

    Raises:
        UsageError: rho out of range, an importance that is not finite, a wrong shape, an unknown solver.
    """
    importance = np.asarray(importance, np.float64)
    if importance.shape != (len(timings),):
        raise UsageError(f"importance must have shape ({len(timings)},), not {importance.shape}.")
    beyond = np.flatnonzero(~(np.abs(importance) < _LARGEST))
    if len(beyond):
        raise UsageError(
            f"the importance of {timings.names[beyond[0]]} is {importance[beyond[0]]:g}: the loss diverged. "
            "Lower the learning rate, or check the data."
        )
    rho_min = timings.rho_min
    if not rho_min * (1 - 1e-9) <= rho <= 1:
        raise UsageError(
            f"rho {rho:g} cannot be had: the cheapest selection takes {rho_min:.3f} of the full step. "
            f"Valid: {np.ceil(rho_min * 1000) / 1000:.3f} to 1."
        )
    if solver not in SOLVERS:
        raise unknown("solver", solver, SOLVERS)
    if resolution < 1:
        raise UsageError(f"resolution must be at least 1, not {resolution}.")

    # rho_min x full_ms may come out a last digit below what the cheapest selection takes.
    budget = max(rho, rho_min) * timings.full_ms * (1 + 1e-12)
    useful = (importance > 0) & timings.connected
    if timings.step_time(useful) <= budget:
        mask = useful
    elif solver == "milp":
        mask = _solve_groups(timings, importance, useful, budget)
    else:
        mask = _solve_chain_and_spend_rest(timings, importance, useful, budget, resolution)
    return Selection(mask, timings.step_time(mask), float(importance[mask].sum()))


def solve_chain(
    t_dw: np.ndarray, t_dy: np.ndarray, importance: np.ndarray, budget: float, resolution: int
) -> np.ndarray:
    """The best selection on a chain within a backward budget, by one knapsack.

    Going inwards from the output, best[t] is the largest importance of the tensors passed so far within dW time t.
    With tensor d as the deepest selected one, the answer is importance[d] + best[budget - dy up to d - dW of d].

    Args:
        t_dw: (N,) ms, tensor 0 nearest the *output*.
        t_dy: (N,) ms; the entries up to the deepest selected tensor are paid.
        importance: (N,); entries <= 0 are never chosen.
        budget: ms for the backward pass and the updates.
        resolution: cells of time. Costs are rounded up, so the budget is never exceeded. With so few tensors that no
            more than this many sums of costs matter, nothing is rounded and the answer is exact.

    Returns:
        (N,) bool mask in the order given.
    """
    mask = np.zeros(len(t_dw), bool)
    unit = budget / resolution
    if unit <= 0:
        return mask
    exact = _solve_chain_exactly(t_dw, t_dy, importance, budget, resolution)
    if exact is not None:
        return exact
    # The slack of 1e-9 keeps a cost of exactly k units at k, where float division gives k + 1e-16.
    with np.errstate(over="ignore"):  # far more than the budget is infinitely many units
        cells = np.ceil(np.minimum(t_dw / unit, resolution + 1) - 1e-9).astype(np.int64)
    paid_dy = np.cumsum(t_dy)
    best = np.zeros(resolution + 1)
    shifted = np.empty(resolution + 1)
    passed, decisions = [], []
    champion: Tuple[float, int, int, int] = (0.0, -1, 0, 0)  # importance, deepest tensor, cells left, items before it
    for d in np.flatnonzero(importance > 0):
        left = int(np.floor((budget - paid_dy[d]) / unit + 1e-9)) - int(cells[d])
        if left >= 0:
            reached = importance[d] + best[left]
            if reached > champion[0]:
                champion = (reached, int(d), left, len(passed))
        cost = int(cells[d])
        if cost > resolution:
            continue
        np.add(best[: resolution + 1 - cost], importance[d], out=shifted[cost:])
        taken = np.zeros(resolution + 1, bool)
        np.greater(shifted[cost:], best[cost:], out=taken[cost:])
        np.copyto(best, shifted, where=taken)
        passed.append(d)
        decisions.append(np.packbits(taken))
    _, deepest, left, items = champion
    if deepest < 0:
        return mask
    mask[deepest] = True
    for item in range(items - 1, -1, -1):
        if decisions[item][left >> 3] >> (7 - (left & 7)) & 1:
            mask[passed[item]] = True
            left -= int(cells[passed[item]])
    return mask


def _solve_chain_exactly(
    t_dw: np.ndarray, t_dy: np.ndarray, importance: np.ndarray, budget: float, limit: int
) -> Optional[np.ndarray]:
    """`solve_chain` on unrounded costs: it keeps the sets that no cheaper set beats; None where they exceed `limit`."""
    items = np.flatnonzero(importance > 0)
    if len(items) > 62:  # a set is the bits of one integer
        return None
    paid_dy = np.cumsum(t_dy)
    cost, value, chosen = np.zeros(1), np.zeros(1), np.zeros(1, np.int64)
    best_value, best_set = 0.0, 0
    for k, d in enumerate(items):
        affordable = int(np.searchsorted(cost, budget - paid_dy[d] - t_dw[d], side="right"))
        if affordable and importance[d] + value[affordable - 1] > best_value:
            best_value = importance[d] + value[affordable - 1]
            best_set = int(chosen[affordable - 1]) | 1 << k
        cost = np.concatenate([cost, cost + t_dw[d]])
        value = np.concatenate([value, value + importance[d]])
        chosen = np.concatenate([chosen, chosen | np.int64(1 << k)])
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


def _solve_chain_and_spend_rest(
    timings: TensorTimings, importance: np.ndarray, useful: np.ndarray, budget: float, resolution: int
) -> np.ndarray:
    """Solve on the chain; where the chain charged more than the cost groups do, spend the difference."""
    order = timings.order
    t_dw, t_shared = timings.t_dw[order], timings.t_shared[order]
    ranked = np.where(useful, importance, 0.0)[order]

    def chain_mask(backward_ms: float) -> np.ndarray:
        mask = np.zeros(len(timings), bool)
        mask[order] = solve_chain(t_dw, t_shared, ranked, backward_ms, resolution)
        return mask

    best = _spend_rest(timings, importance, useful, chain_mask(budget - timings.forward_ms), budget)
    overcharged = timings.chain_time(best) - timings.step_time(best)
    if overcharged <= budget / resolution:
        return best
    # On parallel blocks the chain asks for more than a step takes. Offer it that much more, then halve towards what
    # it can have without the cost groups exceeding the budget.
    low, high = 0.0, 2 * overcharged
    for _ in range(6):
        extra = (low + high) / 2
        mask = chain_mask(budget - timings.forward_ms + extra)
        if timings.step_time(mask) > budget:
            high = extra
            continue
        low = extra
        mask = _spend_rest(timings, importance, useful, mask, budget)
        if importance[mask].sum() > importance[best].sum():
            best = mask
    return best


def _spend_rest(
    timings: TensorTimings, importance: np.ndarray, useful: np.ndarray, mask: np.ndarray, budget: float
) -> np.ndarray:
    """Add tensors that still fit the budget by the cost groups, most importance per ms first."""
    mask = mask.copy()
    for _ in range(8):
        left = budget - timings.step_time(mask)
        unpaid = timings.shared.time_per_tensor(~timings.shared.touched(mask))
        cost = timings.t_dw + unpaid
        fits = np.flatnonzero(useful & ~mask & (cost <= left))
        if not len(fits):
            break
        density = importance[fits] / np.maximum(cost[fits], 1e-12)
        # First those whose shared work is paid already, which leave the costs of the others as they are; then one more.
        for i in fits[np.lexsort((-density, unpaid[fits] > 0))]:
            if cost[i] <= left:
                mask[i] = True
                left -= cost[i]
                if unpaid[i] > 0:
                    break
        else:
            break
    while timings.step_time(mask) > budget:  # rounding in the last digit
        chosen = np.flatnonzero(mask)
        mask[chosen[np.argmin(importance[chosen])]] = False
    return mask


def _solve_groups(
    timings: TensorTimings, importance: np.ndarray, useful: np.ndarray, budget: float
) -> np.ndarray:
    """The exact optimum on the cost groups, by SciPy's HiGHS."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_matrix

    items = np.flatnonzero(useful)
    n = len(items)
    place = {int(item): k for k, item in enumerate(items)}
    merged = {}
    for group in timings.groups:
        members = frozenset(place[i] for i in group.members if i in place)
        if members and group.ms > 0:
            merged[members] = merged.get(members, 0.0) + group.ms
    cost = timings.t_update[items].copy()
    for members in [m for m in merged if len(m) == 1]:
        cost[next(iter(members))] += merged.pop(members)
    sets = sorted(merged, key=len)

    # paid[g] >= selected[i] for each member i. Groups are mostly nested: where h is a subset of g, paid[g] >= paid[h]
    # says the same for all of h's members at once.
    rows, columns, values = [], [], []

    def implies(column: int, group: int) -> None:
        row = len(rows) // 2
        rows.extend([row, row])
        columns.extend([n + group, column])
        values.extend([1.0, -1.0])

    for g, members in enumerate(sets):
        open_members = set(members)
        for h in range(g - 1, -1, -1):
            if open_members & sets[h] and sets[h] < members:
                implies(n + h, g)
                open_members -= sets[h]
        for i in sorted(open_members):
            implies(i, g)

    scale = importance[items].max()
    objective = np.concatenate([-importance[items] / scale, np.zeros(len(sets))])
    weights = np.concatenate([cost, [merged[m] for m in sets]])
    room = budget - timings.forward_ms
    for tighten in (0.0, 1e-7, 1e-6, 1e-5):  # the solver's own tolerance may exceed the budget by a hair
        constraints = [LinearConstraint(weights[None, :] / room, -np.inf, 1 - tighten)]
        if rows:
            matrix = csr_matrix((values, (rows, columns)), shape=(len(rows) // 2, n + len(sets)))
            constraints.append(LinearConstraint(matrix, 0, np.inf))
        result = milp(
            objective,
            integrality=np.concatenate([np.ones(n), np.zeros(len(sets))]),
            bounds=Bounds(0, 1),
            constraints=constraints,
            options={"mip_rel_gap": 0.0},
        )
        if result.x is None:
            raise UsageError(f"the exact solver found no selection: {result.message}")
        mask = np.zeros(len(timings), bool)
        mask[items[result.x[:n] > 0.5]] = True
        if timings.step_time(mask) <= budget:
            return mask
    raise UsageError("the exact solver exceeded the budget; use solver='dp'.")
