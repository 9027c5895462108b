"""The exact optimum on the cost groups, as a mixed-integer program: what the selector is held against."""

import numpy as np

from elastictrainer.errors import UsageError


def solve_groups(profile, importance, useful, budget, memory=None):
    """The exact optimum on the cost groups, by SciPy's HiGHS; UsageError where it finds none.

    Args:
        profile: the profile, N tensors.
        importance: (N,) larger is better.
        useful: (N,) bool: the tensors that may be selected, at least one.
        budget: ms that a step may take.
        memory: bytes that a process may have that takes such steps; None: any.

    Returns:
        (N,) bool.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    items = np.flatnonzero(useful)
    n, place = len(items), {int(item): k for k, item in enumerate(items)}

    def merged(sets):
        amounts = {}
        for tensors, amount in sets:
            members = frozenset(place[i] for i in tensors if i in place)
            if members and amount > 0:
                amounts[members] = amounts.get(members, 0.0) + amount
        return amounts

    ms = merged([*profile.dw.sets(), *profile.shared.sets()])
    taken = {} if memory is None else merged(profile.memory.groups.sets())
    groups = sorted((m for m in {**ms, **taken} if len(m) > 1), key=len)
    alone = [frozenset([i]) for i in range(n)]
    at_depth = profile.reading_ms[items] if profile.reading_ms.any() else np.zeros(0)
    base = n + len(groups)  # the columns: tensors, groups, and which tensor is the deepest
    width = base + len(at_depth)

    def row(values):
        made = np.zeros(width)
        made[list(values)] = list(values.values())
        return made

    # A group with a selected member is paid: paid[g] >= selected[i] for each member i. Groups are mostly
    # nested: where h is a subset of g, paid[g] >= paid[h] says the same for all of h's members at once.
    rows = []
    for g, members in enumerate(groups):
        left = set(members)
        for h in range(g - 1, -1, -1):
            if left & groups[h] and groups[h] < members:
                rows.append(row({n + g: 1.0, n + h: -1.0}))
                left -= groups[h]
        rows += [row({n + g: 1.0, i: -1.0}) for i in sorted(left)]
    # Exactly one tensor may be the deepest: it is selected, and all that are selected are no deeper.
    depth = np.argsort(profile.order)[items]
    for i in range(len(at_depth)):
        rows.append(row({i: -1.0, **{base + d: 1.0 for d in range(n) if depth[d] >= depth[i]}}))
        rows.append(row({i: 1.0, base + i: -1.0}))

    def weights(amounts, tensors, deepest):
        own = [amounts.get(one, 0.0) for one in alone] + tensors
        return np.concatenate([own, [amounts.get(group, 0.0) for group in groups], deepest])

    objective = np.concatenate([-importance[items] / importance[items].max(), np.zeros(width - n)])
    limits = [weights(ms, profile.t_update[items], at_depth) / (budget - profile.forward_ms)]
    if memory is not None:
        limits.append(weights(taken, np.zeros(n), np.zeros(len(at_depth))) / profile.memory.room(memory))
    for tighten in (0.0, 1e-7, 1e-6, 1e-5):  # HiGHS may exceed a constraint by its tolerance of 1e-6
        constraints = [LinearConstraint(limit[None, :], -np.inf, 1 - tighten) for limit in limits]
        result = milp(
            objective,
            integrality=np.concatenate([np.ones(n), np.zeros(len(groups)), np.ones(len(at_depth))]),
            bounds=Bounds(0, 1),
            constraints=constraints + ([LinearConstraint(np.array(rows), 0, np.inf)] if rows else []),
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


def milp(profile, importance, budget):
    """A `Solver`: the exact one; a model of its own makes it slower than a run could bear."""
    useful = (importance > 0) & profile.connected
    return solve_groups(profile, importance, useful, budget) if useful.any() else useful
