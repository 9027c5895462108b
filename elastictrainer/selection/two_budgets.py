"""Selections within two budgets, time and the memory that a process may have. NumPy only."""

from typing import Any, Iterator, Optional, Tuple

import numpy as np
from numpy.typing import NDArray

from elastictrainer.errors import UsageError
from elastictrainer.profiler.cost_groups import CostGroups
from elastictrainer.profiler.timings import TensorTimings
from elastictrainer.selection.knapsack import solve_chain

_CELLS = 500  # of the knapsack of both budgets together: its answer is a start, and is improved
_HALVINGS = 3  # of the weight of one budget against the other
_RAISED = 1.3  # of the budgets, for one more start: on parallel blocks the chain charges more than steps take
_ROUNDS = 3  # of exchanges at most
_EFFORT = 1_200  # exchanges that are looked at in all, times N: few tensors are exchanged thoroughly
_SLACK = 1 + 1e-12


def fitting(timings: TensorTimings, memory: float) -> NDArray[Any]:
    """Return (N,) bool: the tensors that a process of so many bytes can train, alone.

    Raises:
        UsageError: there is none, or the profile does not say what a step takes.
    """
    if timings.memory is None:
        raise UsageError(
            "the profile does not say what a step takes of memory: make a new one with et-profile, on a "
            "device that trains on its processor."
        )
    total = np.where(timings.connected, timings.memory.loaded + timings.memory.alone, np.inf)
    if total.min() > memory:
        raise UsageError(
            f"{memory / 1e9:.2f} GB of memory are too little to train any tensor: the cheapest one takes "
            f"{total.min() / 1e9:.2f} GB."
        )
    return np.asarray(total <= memory)


def fits(timings: TensorTimings, mask: NDArray[Any], memory: Optional[float]) -> bool:
    """Return whether a process of so many bytes can train a selection; None: of any."""
    return memory is None or timings.memory is None or timings.memory.total(mask) <= memory


def without_earliest(timings: TensorTimings, mask: NDArray[Any], memory: float) -> NDArray[Any]:
    """Leave out the earliest tensors of a selection until a process that trains the others fits."""
    mask = mask.copy()
    for tensor in timings.order[::-1]:
        if fits(timings, mask, memory):
            break
        mask[tensor] = False
    return mask


class _Costs:
    """The costs of tensors as shares of two budgets: 1 is all of a budget. Arrays are (2, ...).

    Attributes:
        single: (2, N) cost of each tensor alone.
        shared: (2, N) costs of groups, each at its member nearest the output.
        at_depth: (N,) cost of each tensor as the earliest selected one, of the first budget.
        order: (N,) tensors from the output inwards.
    """

    def __init__(self, timings: TensorTimings, time_ms: float, held: CostGroups, room: float):
        self.order = timings.order
        self.place = np.argsort(self.order)
        self.single = np.stack([timings.t_dw / time_ms, np.zeros(len(timings))])
        self.at_depth = timings.at_depth_ms / time_ms
        parts = timings.shared.scaled(1 / time_ms), held.scaled(1 / room)
        self.shared = np.stack([part.time_at_first_member(self.order) for part in parts])
        bits, row = np.unique(np.concatenate([part.bits for part in parts]), axis=0, return_inverse=True)
        amount = np.zeros((2, len(bits)))
        first = len(parts[0])
        np.add.at(amount[0], row.reshape(-1)[:first], parts[0].amount)
        np.add.at(amount[1], row.reshape(-1)[first:], parts[1].amount)
        self._amount = amount
        self._members = np.unpackbits(bits, axis=1, count=len(timings)).astype(np.float64)

    def cost(self, mask: NDArray[Any]) -> NDArray[Any]:
        """Return (2,) of a selection."""
        paid = self._members @ mask > 0
        cost = self.single[:, mask].sum(axis=1) + self._amount[:, paid].sum(axis=1)
        cost[0] += self._depth_costs(mask)[1]
        return cost

    def adding(self, mask: NDArray[Any]) -> Tuple[NDArray[Any], NDArray[Any]]:
        """Return (2, N) what each tensor would add; and (N,) bool: whether that changes for others."""
        # A group is paid once, by the first member that is selected.
        new = (self._amount * (self._members @ mask == 0)) @ self._members
        earliest, now, _ = self._depth_costs(mask)
        earlier = self.place > earliest
        costs = self.single + new
        costs[0] += np.where(earlier, self.at_depth - now, 0.0)
        return costs, new.any(axis=0) | (earlier & bool(self.at_depth.any()))

    def freed(self, mask: NDArray[Any]) -> NDArray[Any]:
        """Return (2, N) what the removal of each selected tensor would give back."""
        # A group is given back only by its last selected member.
        freed: NDArray[Any] = self.single + (self._amount * (self._members @ mask == 1)) @ self._members
        earliest, now, then = self._depth_costs(mask)
        if earliest >= 0:
            freed[0, self.order[earliest]] += now - then
        return freed

    def _depth_costs(self, mask: NDArray[Any]) -> Tuple[int, float, float]:
        """Return the place of the earliest selected tensor (-1: none), its cost, and that of the next."""
        selected = np.flatnonzero(mask[self.order])
        costs = [0.0, 0.0, *self.at_depth[self.order[selected[-2:]]]]
        return int(selected[-1]) if len(selected) else -1, costs[-1], costs[-2] if len(selected) > 1 else 0.0


def solve_both(
    timings: TensorTimings,
    importance: NDArray[Any],
    useful: NDArray[Any],
    budget_ms: float,
    held: CostGroups,
    room: float,
) -> NDArray[Any]:
    """Return the selection of most importance that was found within both budgets.

    The two are added with weights, which makes them one budget that a knapsack on the chain is solved for;
    the weights are halved towards the budget that the answer exceeds. Each answer is cut down to what fits by
    the cost groups, and filled up. The best one is improved by exchanges of single tensors.

    Args:
        timings: the profile, N tensors.
        importance: (N,) larger is better.
        useful: (N,) bool: the tensors that may be selected.
        budget_ms: of a step.
        held: bytes that a step holds in memory, by the tensors any of which makes it hold them.
        room: bytes for it.

    Returns:
        (N,) bool; empty where no useful tensor fits.
    """
    empty = np.zeros(len(timings), bool)
    time_ms = budget_ms - timings.forward_ms
    if time_ms <= 0 or room <= 0:
        return empty
    costs = _Costs(timings, time_ms, held, room)
    useful = useful & (costs.adding(empty)[0] <= _SLACK).all(axis=0)
    search = _Search(costs, importance, useful)
    best = empty
    # The knapsack knows the chain alone, and both budgets as one: its answers are starts to repair.
    for weights, start in search.starts():
        mask = search.filled(weights, search.cut_down(start))
        best = max(best, mask, key=search.worth)
    return search.exchanged(best)


class _Search:
    """Looks for selections of much importance within both budgets."""

    def __init__(self, costs: _Costs, importance: NDArray[Any], useful: NDArray[Any]):
        self._costs, self._importance, self._useful = costs, importance, useful

    def worth(self, mask: NDArray[Any]) -> float:
        """Return the importance of a selection."""
        return float(self._importance[mask].sum())

    def starts(self) -> Iterator[Tuple[NDArray[Any], NDArray[Any]]]:
        """Yield weights (2,) of the budgets and the knapsack's answer for both together; some exceed one."""
        costs, order = self._costs, self._costs.order
        ranked = np.where(self._useful, self._importance, 0.0)[order]
        low, high = 0.0, 1.0
        tried = [0.0, 1.0]
        # One constraint in place of two: (1 - w) time + w memory <= 1. First w = 0 and w = 1, then halve the
        # interval between them towards the budget that the answer exceeds more.
        for _ in range(len(tried) + _HALVINGS):
            second = tried.pop(0) if tried else (low + high) / 2
            weights = np.array([1 - second, second])
            single, shared = ((weights @ part)[order] for part in (costs.single, costs.shared))
            at_depth = weights[0] * costs.at_depth[order]

            def answer(budget: float) -> NDArray[Any]:
                mask = np.zeros(len(order), bool)
                mask[order] = solve_chain(single, shared, ranked, budget, _CELLS, at_depth)  # noqa: B023
                return mask

            mask = answer(1.0)
            yield weights, mask
            if 0 < second < 1:
                time, memory = costs.cost(mask)
                low, high = (second, high) if memory > time else (low, second)
        yield weights, answer(_RAISED)

    def cut_down(self, mask: NDArray[Any], kept: int = -1) -> NDArray[Any]:
        """Leave out what is worth least for what it gives back of an exceeded budget, until both are kept.

        Tensor `kept`, which fits alone, is not left out.
        """
        mask = mask.copy()
        while mask.any():
            over = np.maximum(0.0, self._costs.cost(mask) - _SLACK)
            if not over.any():
                break
            # What a tensor gives back beyond the excess counts for nothing.
            freed = np.minimum(1.0, self._costs.freed(mask) / np.maximum(over, 1e-9)[:, None])
            value = self._importance / np.maximum(freed[over > 0].sum(axis=0), 1e-12)
            chosen = np.flatnonzero(mask & (np.arange(len(mask)) != kept))
            # Far above a budget several at once: what is left out too much comes back.
            several = 1 if over.max() < 0.1 else 1 + len(chosen) // 10
            mask[chosen[np.argsort(value[chosen])[:several]]] = False
        return mask

    def filled(self, weights: NDArray[Any], mask: NDArray[Any], but: int = -1) -> NDArray[Any]:
        """Add tensors that fit, most importance for its weighted cost first; not tensor `but`."""
        mask = mask.copy()
        allowed = self._useful & (np.arange(len(mask)) != but)
        while True:
            adds, starts = self._costs.adding(mask)
            left = _SLACK - self._costs.cost(mask)
            fits = np.flatnonzero(allowed & ~mask & (adds <= left[:, None]).all(axis=0))
            if not len(fits):
                return mask
            density = self._importance / np.maximum(weights @ adds, 1e-12)
            # Those that leave the costs of the others as they are, then one that does not.
            for i in fits[np.lexsort((-density[fits], starts[fits]))]:
                if (adds[:, i] <= left).all():
                    mask[i] = True
                    left -= adds[:, i]
                    if starts[i]:
                        break

    def exchanged(self, best: NDArray[Any]) -> NDArray[Any]:
        """Improve a selection: one tensor in or out, and what then fits best."""
        count = max(1, _EFFORT // len(best) // (2 * _ROUNDS))
        for _ in range(_ROUNDS):
            better = max(self._exchanges(best, count), key=self.worth, default=best)
            if self.worth(better) <= self.worth(best) * _SLACK:
                break
            best = better
        return best

    def _exchanges(self, best: NDArray[Any], count: int) -> Iterator[NDArray[Any]]:
        """Yield selections with one tensor added or removed, then filled; `count` of each kind."""
        even = np.array([0.5, 0.5])
        outside = np.flatnonzero(self._useful & ~best)
        for i in outside[np.argsort(-self._importance[outside])][:count]:
            with_it = best.copy()
            with_it[i] = True
            yield self.filled(even, self.cut_down(with_it, i))
        inside = np.flatnonzero(best)
        value = self._importance / np.maximum(self._costs.freed(best).sum(axis=0), 1e-12)
        for i in inside[np.argsort(value[inside])][:count]:
            without = best.copy()
            without[i] = False
            yield self.filled(even, self.filled(even, without, but=i))
