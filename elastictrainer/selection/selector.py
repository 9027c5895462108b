"""The tensor selector: the most importance that a step has time and memory for. NumPy only."""

from dataclasses import dataclass
from typing import Callable, Iterator, List, Optional, Tuple, Union

import numpy as np
from numpy.typing import ArrayLike, NDArray

from elastictrainer.errors import UsageError, unknown
from elastictrainer.profiler.cost_groups import CostGroups, Mask, Numbers
from elastictrainer.profiler.profile import Profile

# Exceptions, by their names in a run's files. No tensor has a positive importance: the previous selection
# stays, or the late layers train that fit the budget. None of positive importance fits: the cheapest trains.
UNCHANGED, LATE_LAYERS, OVER_BUDGET = EXCEPTIONS = ("kept_previous", "late_layers", "over_budget")
# From the profile, the (N,) importances and the ms that a step may take, to the (N,) bool of what trains, all
# in the order of `model.trainable_weights`.
Solver = Callable[[Profile, Numbers, float], Mask]
_LARGEST = 1e100  # of an importance: sums and quotients of such numbers stay finite
# Exchanges of a round times N. On 200 random cases of 8 tensors they add 5 % of importance; on the profiles
# of networks of 158 tensors and more, nothing.
_EFFORT = 150


@dataclass(frozen=True)
class Selection:
    """The tensors to train.

    Attributes:
        mask: (N,) bool, in the order of `model.trainable_weights`.
        step_ms: predicted time of a step under the mask.
        importance: summed importance of the mask.
    """

    mask: Mask
    step_ms: float
    importance: float


def select(
    profile: Profile,
    importance: ArrayLike,
    rho: float,
    solver: Union[str, Solver] = "dp",
    resolution: int = 10_000,
    cached: bool = False,
    memory: Optional[float] = None,
) -> Selection:
    """Choose the tensors with the largest summed importance whose step takes at most `rho` of the full step.

    Maximises sum(importance[i] for selected i) subject to `profile.step_time(mask) <= rho * profile.full_ms`
    (paper Sec. 3.3). Tensors of importance zero or less are never selected.

    Args:
        profile: the profile, N tensors.
        importance: (N,) larger is better, in the order of `model.trainable_weights`.
        rho: requested step time over the full step's, in [profile.rho_min, 1].
        solver: "dp": a knapsack on the chain model, exact there up to costs rounded up to 1 / resolution of
            the budget; the time that the chain overestimates is then spent by the cost groups. Or a `Solver`
            of one's own, such as `freeze_below`; whether it meets the budget is not checked.
        resolution: cells of time of the knapsack.
        cached: the step reads activations that were cached before; only with a profile that has the costs of
            that, as those of et-profile and Trainer.fit do.
        memory: bytes that the process may have resident (see `StepMemory.total`); None: as many as it takes.
            Of the selection of a `Solver` the earliest tensors are then left out until it fits.

    Returns:
        The selection. Its mask is empty where no tensor of positive importance fits the budget.

    Raises:
        UsageError: an argument out of range, `cached` or `memory` with a profile that cannot tell its costs,
            or too little memory for any tensor.
    """
    importance = np.asarray(importance, np.float64)
    if importance.shape != (len(profile),):
        raise UsageError(f"importance must have shape ({len(profile)},), not {importance.shape}.")
    beyond = np.flatnonzero(~(np.abs(importance) < _LARGEST))
    if len(beyond):
        raise UsageError(
            f"the importance of {profile.names[beyond[0]]} is {importance[beyond[0]]:g}: the loss diverged. "
            "Lower the learning rate, or check the data."
        )
    if cached and not profile.cache:
        raise UsageError(
            "the profile does not have the costs of cached steps, which `cached` needs: take one that "
            "et-profile or Trainer.fit made."
        )
    profile = profile.with_cache if cached else profile
    rho_min = profile.rho_min
    if not rho_min * (1 - 1e-9) <= rho <= 1:
        raise UsageError(
            f"rho {rho:g} is not achievable: the cheapest selection takes {rho_min:.3f} of the full step. "
            f"Valid: {np.ceil(rho_min * 1000) / 1000:.3f} to 1."
        )
    if isinstance(solver, str) and solver != "dp":
        raise unknown("solver", solver, ["dp"])
    if resolution < 1:
        raise UsageError(f"resolution must be at least 1, not {resolution}.")

    # rho_min x full_ms may come out a last digit below what the cheapest selection takes.
    budget = max(rho, rho_min) * profile.full_ms * (1 + 1e-12)
    useful = _useful(profile, importance, memory)
    search = _Search(profile, importance, useful, budget, memory)
    if isinstance(solver, str):
        mask = search.solve(resolution)
    else:
        mask = profile.as_mask(solver(profile, importance, budget)) & profile.connected
        for tensor in profile.order[::-1]:
            if search.fits_memory(mask):
                break
            mask[tensor] = False
    return Selection(mask, profile.step_time(mask), float(importance[mask].sum()))


def _useful(profile: Profile, importance: Numbers, memory: Optional[float]) -> Mask:
    """Return (N,) bool: the tensors whose training promises something, and fits alone into memory.

    Raises:
        UsageError: none fits, or the profile does not say what a step takes.
    """
    useful = (importance > 0) & profile.connected
    if memory is None:
        return useful
    if profile.memory is None:
        raise UsageError(
            "the profile does not say what a step takes of memory: make a new one with et-profile, on a "
            "device that trains on its processor."
        )
    total = np.where(profile.connected, profile.memory.loaded + profile.memory.alone, np.inf)
    if total.min() > memory:
        raise UsageError(
            f"{memory / 1e9:.2f} GB of memory are too little to train any tensor: the cheapest one takes "
            f"{total.min() / 1e9:.2f} GB."
        )
    return useful & (total <= memory)


def select_with_fallback(
    profile: Profile,
    importance: Numbers,
    rho: float,
    solver: Union[str, Solver] = "dp",
    previous: Optional[Mask] = None,
    memory: Optional[float] = None,
) -> Tuple[Mask, Optional[str]]:
    """Select as `select` does, with a fallback where its answer is empty.

    Where all tensors of positive importance exceed the budget, that is the cheapest of them; where there is
    none, `previous`, the (N,) selection so far, or before the first one the late layers.

    Returns:
        (N,) bool; and UNCHANGED, LATE_LAYERS or OVER_BUDGET where `select` has no other answer, else None.

    Raises:
        UsageError: as `select`.
    """
    mask = select(profile, importance, rho, solver=solver, memory=memory).mask
    if mask.any():
        return mask, None
    useful = _useful(profile, importance, memory)
    if useful.any():
        return np.arange(len(profile)) == np.argmin(np.where(useful, profile.alone_ms, np.inf)), OVER_BUDGET
    if previous is None:
        worth = np.ones(len(profile))
        return select(profile, worth, rho, solver=freeze_below, memory=memory).mask, LATE_LAYERS
    return previous, UNCHANGED


def freeze_below(profile: Profile, importance: Numbers, budget: float) -> Mask:
    """Select all tensors from the output inwards that the budget allows; importance does not count. A
    `Solver`.
    """
    best = np.zeros(len(profile), bool)
    mask = best.copy()
    for tensor in profile.order[profile.connected[profile.order]]:
        mask[tensor] = True
        if profile.step_time(mask) <= budget:  # earlier ones may cost less where they cache less
            best = mask.copy()
    return best


class _Search:
    """Looks for selections of much importance that a step has time and memory for.

    What tensors cost is counted in shares of K budgets, time and perhaps memory: 1 is all of one.
    """

    def __init__(
        self,
        profile: Profile,
        importance: Numbers,
        useful: Mask,
        budget_ms: float,
        memory: Optional[float] = None,
    ):
        """
        Args:
            profile: the profile, N tensors.
            importance: (N,) larger is better.
            useful: (N,) bool: the tensors that may be selected.
            budget_ms: of a step.
            memory: bytes of a process, see `StepMemory.total`; None: any.
        """
        self._profile, self._importance, self._useful = profile, importance, useful
        self._budget_ms, self._memory = budget_ms, memory
        self._time_ms = max(budget_ms - profile.forward_ms, 1e-9)  # where there is no room, nothing fits
        parts = [profile.shared.scaled(1 / self._time_ms)]
        if memory is not None and profile.memory is not None:
            parts.append(profile.memory.groups.scaled(1 / max(profile.memory.room(memory), 1e-9)))
        # A group of one tensor is a cost of its own, as its dW work is.
        several = [part.members_in(np.ones(len(profile), bool)) > 1 for part in parts]
        self._shared = [part.rows(rows) for part, rows in zip(parts, several)]
        self._alone = np.stack([part.rows(~rows).amount_per_tensor() for part, rows in zip(parts, several)])
        self._alone[0] += profile.t_alone / self._time_ms

    def solve(self, resolution: int) -> Mask:
        """Return (N,) bool: the selection of most importance that was found; empty where nothing fits.

        A knapsack on the chain is solved for each budget, twice where layers share work. It overestimates
        a step on parallel blocks, and knows one budget alone: each answer is cut down to what fits by the
        cost groups, filled up, and improved by exchanges of single tensors.

        Args:
            resolution: cells of the knapsack.
        """
        if self.fits(self._useful):
            return self._useful
        starts = map(self._cut_down, self._on_chains(resolution))
        return max((self._exchanged(self._swapped(self._filled(start))) for start in starts), key=self._worth)

    def fits(self, mask: Mask) -> bool:
        """Return whether time and memory suffice for a selection."""
        return self._profile.step_time(mask) <= self._budget_ms and self.fits_memory(mask)

    def fits_memory(self, mask: Mask) -> bool:
        """Return whether memory suffices for a selection."""
        memory = self._profile.memory
        return self._memory is None or memory is None or memory.total(mask) <= self._memory

    def _worth(self, mask: Mask) -> float:
        return float(self._importance[mask].sum())

    def _on_chains(self, resolution: int) -> Iterator[Mask]:
        """Yield the knapsack's answers, (N,) bool, by each budget alone.

        On a chain, shared work is for the earliest tensor, too. A group without it is a layer's own, such as
        that of a folded kernel's gradient, which is for its norm's gamma as well. It counts as shared work,
        and a second time in equal parts as its members' own: neither is right, and neither the better start.
        """
        order = self._profile.order
        reading: Numbers = self._profile.reading_ms / self._time_ms
        for alone, groups, at_depth in zip(self._alone, self._shared, (reading, np.zeros(len(order)))):
            yield self._on_chain(alone, groups, at_depth, resolution)
            own = groups.without(order[-1])
            if own.any():
                parts = groups.rows(own)
                parts = parts.scaled(1 / parts.members_in(np.ones(len(order), bool)))
                alone = alone + parts.amount_per_tensor()
                yield self._on_chain(alone, groups.rows(~own), at_depth, resolution)

    def _on_chain(self, alone: Numbers, groups: CostGroups, at_depth: Numbers, resolution: int) -> Mask:
        """Solve a chain on which a tensor costs `alone`, and the earliest one `groups` and `at_depth`."""
        order, mask = self._profile.order, np.zeros(len(self._profile), bool)
        to_depth = np.cumsum(groups.amount_at_first_member(order)[order]) + at_depth[order]
        ranked = np.where(self._useful, self._importance, 0.0)[order]
        mask[order] = solve_chain(alone[order], to_depth, ranked, 1.0, resolution)
        return mask

    def _cost(self, mask: Mask) -> Numbers:
        """Return (K,) of a selection."""
        cost = self._alone[:, mask].sum(axis=1) + [part.active_amount(mask) for part in self._shared]
        # That of time has reading in it, which is the earliest tensor's and no group's.
        cost[0] = (self._profile.step_time(mask) - self._profile.forward_ms) / self._time_ms
        return np.asarray(cost)

    def _started_by(self, mask: Mask) -> Numbers:
        """Return (K, N) of the shared work that no tensor of `mask` has started and each one would."""
        return np.stack([part.rows(~part.active_groups(mask)).amount_per_tensor() for part in self._shared])

    def _filled(self, mask: Mask, addable: Union[bool, Mask] = True) -> Mask:
        """Add tensors that fit, of those `addable`, most importance for its share of the budgets first."""
        given, mask = mask, mask.copy()
        # A tensor costs what it takes alone, and the shared work that it starts.
        new = self._started_by(mask)
        reading = self._profile.added_reading_ms(mask) / self._time_ms
        adds, starts = self._alone + new, new.any(axis=0) | (reading != 0)
        adds[0] += reading
        left: Numbers = 1 - self._cost(mask)
        fitting = np.flatnonzero(self._useful & addable & ~mask & (adds <= left[:, None]).all(axis=0))
        density = self._importance / np.maximum(adds.sum(axis=0), 1e-12)
        # First those that leave the costs of the others as they are, then one that does not.
        for i in fitting[np.lexsort((-density[fitting], starts[fitting]))]:
            if (adds[:, i] <= left).all():
                mask[i] = True
                left -= adds[:, i]
                if starts[i]:
                    break
        while not self.fits(mask) and (mask & ~given).any():  # rounding in the last digit
            mask[np.argmin(np.where(mask & ~given, self._importance, np.inf))] = False
        return mask

    def _cut_down(self, mask: Mask, removable: Union[bool, Mask] = True) -> Mask:
        """Leave out, of the tensors `removable`, what is worth least for what it frees of an exceeded
        budget.
        """
        mask = mask.copy()
        while not self.fits(mask) and (mask & removable).any():
            # A group is freed by its last selected member; what is freed beyond the excess does not count.
            last = [part.rows(part.members_in(mask) == 1).amount_per_tensor() for part in self._shared]
            over = np.maximum(self._cost(mask) - 1, 1e-9)[:, None]
            freed = np.minimum((self._alone + last) / over, 1.0)[over[:, 0] > 1e-9].sum(axis=0)
            value = self._importance / np.maximum(freed, 1e-12)
            mask[np.argmin(np.where(mask & removable, value, np.inf))] = False
        return mask

    def _swapped(self, mask: Mask) -> Mask:
        """Exchange one tensor for another that fits in its place, the best pair first; shared work stays.

        The knapsack rounds costs up, so that it leaves a little of the budget.
        """
        free = ~self._started_by(mask).any(axis=0) & ~self._profile.is_earlier(mask)
        outside, inside = np.flatnonzero(self._useful & ~mask & free), np.flatnonzero(mask)
        while len(outside) and len(inside):
            left = 1 - self._cost(mask)
            gain = self._importance[outside][:, None] - self._importance[inside]
            for k, alone in enumerate(self._alone):
                gain[alone[outside][:, None] - alone[inside] > left[k]] = 0.0
            o, i = np.unravel_index(np.argmax(gain), gain.shape)
            swapped = mask.copy()
            swapped[[outside[o], inside[i]]] = True, False
            if gain[o, i] <= 0 or not self.fits(swapped):
                break
            mask = swapped
            outside[o], inside[i] = inside[i], outside[o]
        return mask

    def _exchanged(self, best: Mask) -> Mask:
        """Improve a selection: one tensor comes or goes, and then what fits best."""
        while True:
            better = max(self._exchanges(best), key=self._worth, default=best)
            if self._worth(better) <= self._worth(best):
                return best
            best = better

    def _exchanges(self, best: Mask) -> Iterator[Mask]:
        """Yield selections that differ by one tensor, and what makes room for it or takes its room."""
        few = _EFFORT // len(best)
        rising = np.argsort(self._importance)
        inside, outside = rising[best[rising]], rising[(self._useful & ~best)[rising]]
        for i in outside[::-1][:few]:
            others = np.arange(len(best)) != i
            mask = self._cut_down(best | ~others, others)
            if self.fits(mask):
                yield self._filled(mask)
        for i in inside[:few]:
            others = np.arange(len(best)) != i
            yield self._filled(self._filled(best & others, others))


def solve_chain(
    t_dw: Numbers, to_depth: Numbers, importance: Numbers, budget: float, resolution: int
) -> Mask:
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
    decisions: List[NDArray[np.uint8]] = []
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
