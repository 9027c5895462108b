"""The exact optimum on the cost groups, as a mixed-integer program: what the selector is held against."""

from typing import Any, Dict, FrozenSet, List, Optional

import numpy as np
from numpy.typing import NDArray

from elastictrainer.errors import UsageError
from elastictrainer.profiler.profile import Profile


def solve_groups(
    profile: Profile,
    importance: NDArray[Any],
    useful: NDArray[Any],
    budget: float,
    memory: Optional[float] = None,
) -> NDArray[Any]:
    """The exact optimum on the cost groups, by SciPy's HiGHS.

    Args:
        profile: the profile, N tensors.
        importance: (N,) larger is better.
        useful: (N,) bool: the tensors that may be selected, at least one.
        budget: ms that a step may take.
        memory: bytes that a process may have that takes such steps; None: any.

    Returns:
        (N,) bool.

    Raises:
        UsageError: the solver found no selection, or exceeded the budget.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_matrix

    items = np.flatnonzero(useful)
    n = len(items)
    place = {int(item): k for k, item in enumerate(items)}
    merged: Dict[FrozenSet[int], float] = {}
    for tensors, ms in [*profile.dw.sets(), *profile.shared.sets()]:
        members = frozenset(place[i] for i in tensors if i in place)
        if members and ms > 0:
            merged[members] = merged.get(members, 0.0) + ms
    taken: Dict[FrozenSet[int], float] = {}
    if memory is not None:
        assert profile.memory is not None
        for members, size in profile.memory.groups.sets():
            inside = frozenset(place[i] for i in members if i in place)
            if inside:
                taken[inside] = taken.get(inside, 0.0) + size
                merged.setdefault(inside, 0.0)
    cost = profile.t_update[items].copy()
    for members in [m for m in merged if len(m) == 1]:
        cost[next(iter(members))] += merged.pop(members)
    size_alone = np.array([taken.get(frozenset([i]), 0.0) for i in range(n)])
    sets = sorted(merged, key=len)

    # A group with a selected member is paid: paid[g] >= selected[i] for each member i. Groups are mostly
    # nested: where h is a subset of g, paid[g] >= paid[h] says the same for all of h's members at once.
    rows: List[int] = []
    columns: List[int] = []
    values: List[float] = []

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

    # Exactly one tensor may be the deepest: it is selected, and all that are selected are no deeper.
    depth = np.argsort(profile.order)[items]
    at_depth = profile.reading_ms[items] if profile.reading_ms.any() else np.zeros(0)
    base = n + len(sets)
    row = len(rows) // 2
    for i in range(len(at_depth)):
        deepest_or_deeper = [base + d for d in range(n) if depth[d] >= depth[i]]
        for column, value in [(i, -1.0), *((d, 1.0) for d in deepest_or_deeper)]:
            rows.append(row)
            columns.append(column)
            values.append(value)
        row += 1
        for column, value in [(i, 1.0), (base + i, -1.0)]:
            rows.append(row)
            columns.append(column)
            values.append(value)
        row += 1

    scale = importance[items].max()
    objective = np.concatenate([-importance[items] / scale, np.zeros(len(sets) + len(at_depth))])
    weights = np.concatenate([cost, [merged[m] for m in sets], at_depth])
    room = budget - profile.forward_ms
    for tighten in (0.0, 1e-7, 1e-6, 1e-5):  # HiGHS may exceed a constraint by its tolerance of 1e-6
        constraints = [LinearConstraint(weights[None, :] / room, -np.inf, 1 - tighten)]
        if memory is not None:
            assert profile.memory is not None
            sizes = np.concatenate([size_alone, [taken.get(m, 0.0) for m in sets], np.zeros(len(at_depth))])
            left = profile.memory.room(memory)
            constraints.append(LinearConstraint(sizes[None, :] / left, -np.inf, 1 - tighten))
        if rows:
            matrix = csr_matrix((values, (rows, columns)), shape=(row, len(weights)))
            constraints.append(LinearConstraint(matrix, 0, np.inf))
        result = milp(
            objective,
            integrality=np.concatenate([np.ones(n), np.zeros(len(sets)), np.ones(len(at_depth))]),
            bounds=Bounds(0, 1),
            constraints=constraints,
            options={"mip_rel_gap": 0.0},
        )
        if result.x is None:
            raise UsageError(f"the exact solver found no selection: {result.message}")
        mask = np.zeros(len(profile), bool)
        mask[items[result.x[:n] > 0.5]] = True
        fits = memory is None or profile.memory.total(mask) <= memory
        if profile.step_time(mask) <= budget and fits:
            return mask
    raise UsageError("the exact solver exceeded the budget; use solver='dp'.")


def milp(profile: Profile, importance: NDArray[Any], budget: float) -> NDArray[Any]:
    """A `Solver`: the exact one; a model of its own makes it slower than a run could bear."""
    useful = (importance > 0) & profile.connected
    return solve_groups(profile, importance, useful, budget) if useful.any() else useful
