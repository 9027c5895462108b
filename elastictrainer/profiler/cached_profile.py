"""The time model of cached steps, which begin by reading activations that were cached before. NumPy only."""

from functools import cached_property
from typing import Optional

import numpy as np

from elastictrainer.profiler.cache_costs import CacheCosts
from elastictrainer.profiler.cost_groups import CostGroups
from elastictrainer.profiler.profile import Mask, Profile


class CachedProfile(Profile):
    """A profile that has `cache`, for cached steps: all times and FLOPs of selections are theirs."""

    @cached_property
    def with_cache(self) -> Profile:
        """Return this profile."""
        return self

    @property
    def _costs(self) -> CacheCosts:
        assert self.cache is not None
        return self.cache

    @cached_property
    def _unfreeze_cost(self) -> CostGroups:
        once = self._costs.once.rows(self._costs.once.has_members())
        saved = self.forward.rows(self.forward.has_members()).scaled(self.frozen_saving)
        return saved.joined(once.scaled(1 - self.frozen_saving))

    @cached_property
    def reading_ms(self) -> np.ndarray:
        """Return (N,) ms that reading the cache costs a step whose earliest tensor is this one.

        No more than it saves: work that does not pay is done in every step.
        """
        # The rest of a step, behind the cut, runs with cold caches: longer by the share `slower`.
        alone_ms = np.where(self.connected, Profile(**self._attributes()).alone_ms, self.saved_ms)
        slower_ms = self._costs.slower * np.maximum(0.0, alone_ms - self.saved_ms)
        return np.minimum(self._costs.cache_read_ms + slower_ms, self.saved_ms)

    @cached_property
    def forward_ms(self) -> float:
        """Return the ms of every step, whatever is selected, without the work that was done before."""
        unfrozen_ms = float(self._unfreeze_cost.amount.sum())
        return float(self.forward.amount.sum()) - unfrozen_ms - self._costs.once.always

    def step_flops(self, mask: Mask) -> Optional[float]:
        """Predict the floating point operations of a cached step under `mask`; None without a count."""
        flops, once = super().step_flops(mask), self._costs.once_flops
        return flops and flops - float(once.amount.sum()) + once.active_amount(self.as_mask(mask))
