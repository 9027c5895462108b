"""A search for the selection of most importance that a step has time and memory for. NumPy only."""

from typing import Any, Iterator, Optional, Union

import numpy as np
from numpy.typing import NDArray

from elastictrainer.profiler.profile import Profile
from elastictrainer.selection.knapsack import solve_chain

_EFFORT = 200  # exchanges of a round times N; on 200 random cases of 8 tensors they add 5 % of importance


class Search:
    """Looks for selections of much importance that a step has time and memory for.

    What tensors cost is counted in shares of K budgets, time and perhaps memory: 1 is all of one.
    """

    def __init__(
        self,
        profile: Profile,
        importance: NDArray[Any],
        useful: NDArray[Any],
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
        self._alone[0] += profile.t_dw / self._time_ms

    def solve(self, resolution: int) -> NDArray[Any]:
        """Return (N,) bool: the selection of most importance that was found; empty where nothing fits.

        A knapsack on the chain is solved for each budget. It overestimates a step on parallel blocks, and
        knows one budget alone: each answer is cut down to what fits by the cost groups, filled up, and
        improved by exchanges of single tensors.

        Args:
            resolution: cells of the knapsack.
        """
        if self.fits(self._useful):
            return self._useful
        starts = [self._cut_down(self._on_chain(k, resolution)) for k in range(len(self._shared))]
        return max((self._exchanged(self._filled(start)) for start in starts), key=self._worth)

    def fits(self, mask: NDArray[Any]) -> bool:
        """Return whether time and memory suffice for a selection."""
        return self._profile.step_time(mask) <= self._budget_ms and self.fits_memory(mask)

    def fits_memory(self, mask: NDArray[Any]) -> bool:
        """Return whether memory suffices for a selection."""
        memory = self._profile.memory
        return self._memory is None or memory is None or memory.total(mask) <= self._memory

    def _worth(self, mask: NDArray[Any]) -> float:
        return float(self._importance[mask].sum())

    def _on_chain(self, k: int, resolution: int) -> NDArray[Any]:
        """Return the knapsack's answer, (N,) bool, for budget number `k` alone."""
        order = self._profile.order
        to_depth = np.cumsum(self._shared[k].amount_at_first_member(order)[order])
        if k == 0:  # that of time
            to_depth += self._profile.reading_ms[order] / self._time_ms
        ranked = np.where(self._useful, self._importance, 0.0)[order]
        mask = np.zeros(len(order), bool)
        mask[order] = solve_chain(self._alone[k][order], to_depth, ranked, 1.0, resolution)
        return mask

    def _cost(self, mask: NDArray[Any]) -> NDArray[Any]:
        """Return (K,) of a selection."""
        cost = self._alone[:, mask].sum(axis=1) + [part.active_amount(mask) for part in self._shared]
        cost[0] = (self._profile.step_time(mask) - self._profile.forward_ms) / self._time_ms
        return np.asarray(cost)

    def _filled(self, mask: NDArray[Any], addable: Union[bool, NDArray[Any]] = True) -> NDArray[Any]:
        """Add tensors that fit, of those `addable`, most importance for its share of the budgets first."""
        given, mask = mask, mask.copy()
        # A tensor costs what it takes alone, and the groups that no selected tensor has started yet.
        new = np.stack([part.rows(~part.active_groups(mask)).amount_per_tensor() for part in self._shared])
        reading = self._profile.added_reading_ms(mask) / self._time_ms
        adds, starts = self._alone + new, new.any(axis=0) | (reading != 0)
        adds[0] += reading
        left = 1 - self._cost(mask)
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

    def _cut_down(self, mask: NDArray[Any], removable: Union[bool, NDArray[Any]] = True) -> NDArray[Any]:
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

    def _exchanged(self, best: NDArray[Any]) -> NDArray[Any]:
        """Improve a selection: one tensor comes or goes, and then what fits best."""
        while True:
            better = max(self._exchanges(best), key=self._worth, default=best)
            if self._worth(better) <= self._worth(best):
                return best
            best = better

    def _exchanges(self, best: NDArray[Any]) -> Iterator[NDArray[Any]]:
        """Yield selections that differ by one tensor, and what makes room for it or takes its room."""
        few = max(1, _EFFORT // len(best))
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
