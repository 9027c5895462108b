"""The time model: what a training step costs under a selection of tensors. NumPy only."""

from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

import numpy as np

from elastictrainer.errors import UsageError
from elastictrainer.profiler import storage
from elastictrainer.profiler.cache_costs import CacheCosts
from elastictrainer.profiler.cost_groups import Amounts, CostGroups
from elastictrainer.profiler.step_memory import StepMemory
from elastictrainer.runs.files import write_json

_LONGEST_STEP_MS = 1e9  # no step takes eleven days; such sums come from a damaged file

Mask = Union[Sequence[bool], np.ndarray]  # (N,): True for a selected tensor


@dataclass
class Profile:
    """The profile: the time of each tensor's work on one device.

    All arrays are in the order of `model.trainable_weights`; all times are wall-clock ms of a step.

    Attributes:
        names: N tensor names.
        shapes: N tensor shapes.
        dw: groups of weight gradient work (dW), one tensor each.
        dy: groups of activation gradient work (dy), for one or more tensors.
        forward: groups of forward work by the tensors it depends on; work that depends on none has no member.
        flops: groups of floating point operations of a step, next to the times; those of no member are the
            forward pass and run in every step. None in a profile that was not counted.
        frozen_saving: share of its time in 0..1 that forward work saves while no tensor it depends on is
            selected.
        overlap: share of the dW work that is charged to `dy`, because a step without the dW work does not
            save it; negative where such a step saves more. `dw`, `dy` and `t_update` include it.
        t_update: (N,) the optimizer's work for each tensor.
        connected: (N,) bool, False where the loss does not depend on the tensor, so that it cannot be
            trained.
        estimated: (N,) bool, True where a time was not measured but estimated from FLOPs.
        cache: the costs of cached activations; None where they were not measured.
        memory: the memory of a step; None in a profile without that.
        metadata: model, device, and the share of the time that could be attributed.
        validation: measured selections, each {"selected": indices, "predicted_ms", "measured_ms"}.
    """

    names: Tuple[str, ...]
    shapes: Tuple[Tuple[int, ...], ...]
    dw: CostGroups
    dy: CostGroups
    forward: CostGroups
    t_update: np.ndarray
    connected: np.ndarray
    estimated: np.ndarray
    frozen_saving: float = 0.0
    overlap: float = 0.0
    flops: Optional[CostGroups] = None
    cache: Optional[CacheCosts] = None
    memory: Optional[StepMemory] = None
    metadata: Dict[str, Any] = field(default_factory=dict)
    validation: List[Dict[str, Any]] = field(default_factory=list)

    @classmethod
    def from_chain(cls, names: Sequence[str], forward_ms: float, t_dw: Amounts, t_dy: Amounts) -> "Profile":
        """Make the profile of a plain chain of tensors (the paper's model, Sec. 3.3).

        Args:
            names: N names; tensor 0 is nearest the input.
            forward_ms: the forward pass, in ms.
            t_dw: (N,) ms, paid when the tensor is selected.
            t_dy: (N,) ms; tensor k's is paid when any of the tensors 0..k is selected.

        Raises:
            UsageError: lengths differ, or a time is negative or not finite.
        """
        n = len(names)
        times = np.concatenate([[forward_ms], np.ravel(t_dw), np.ravel(t_dy)]).astype(np.float64)
        if np.size(t_dw) != n or np.size(t_dy) != n:
            raise UsageError(
                f"{n} names, {np.size(t_dw)} values of t_dw, {np.size(t_dy)} of t_dy: they must agree."
            )
        return cls(
            names=tuple(names),
            shapes=tuple(() for _ in names),
            dw=CostGroups.singletons(times[1 : n + 1]),
            dy=CostGroups.prefixes(times[n + 1 :]),
            forward=CostGroups.from_sets(n, [()], [times[0]]),
            t_update=np.zeros(n),
            connected=np.ones(n, bool),
            estimated=np.zeros(n, bool),
        )

    def __post_init__(self) -> None:
        times = np.concatenate([self.dw.amount, self.dy.amount, self.forward.amount, self.t_update])
        if not np.all(np.isfinite(times)) or np.any(times < 0):
            raise UsageError("a time is negative or infinite.")
        total = np.minimum(times, _LONGEST_STEP_MS).sum()
        if not 0 < total < _LONGEST_STEP_MS:
            raise UsageError(f"the times add up to {total:g} ms: that is no training step.")

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def with_cache(self) -> "Profile":
        """Return the same profile for cached steps, a CachedProfile; as it is without `cache`."""
        from elastictrainer.profiler.cached_profile import CachedProfile  # which extends this class

        return CachedProfile(**self._attributes()) if self.cache else self

    def _attributes(self) -> Dict[str, Any]:
        return {attribute.name: getattr(self, attribute.name) for attribute in fields(self)}

    @cached_property
    def _unfreeze_cost(self) -> CostGroups:
        """Return by how much each forward group costs more while a member is selected."""
        return self.forward.rows(self.forward.has_members()).scaled(self.frozen_saving)

    @cached_property
    def saved_ms(self) -> np.ndarray:
        """Return (N,) ms of forward work that a cached step saves where this tensor is the earliest that
        trains.
        """
        assert self.cache is not None
        once = self.cache.once
        # With tensor d as the earliest that trains, a group is frozen unless its member nearest the output is
        # d or nearer the output: what is left of the sum behind d.
        passed = once.amount_at_first_member(self.order)[self.order].cumsum()
        shared = once.amount[once.has_members()].sum()
        saved = np.empty(len(self))
        saved[self.order] = (shared - passed) * (1 - self.frozen_saving)
        return saved + once.always

    @cached_property
    def reading_ms(self) -> np.ndarray:
        """Return (N,) ms that reading the cache costs a step whose earliest tensor is this one: none here."""
        return np.zeros(len(self))

    @cached_property
    def shared(self) -> CostGroups:
        """Return the groups that tensors have in common: dy work, and forward work that unfreezing adds."""
        return self.dy.joined(self._unfreeze_cost)

    @cached_property
    def order(self) -> np.ndarray:
        """Return (N,) indices from the output inwards: fewest dy groups first; among equals, later tensors
        first.
        """
        depth = self.dy.groups_per_tensor()
        return np.lexsort((-np.arange(len(self)), depth))

    @cached_property
    def _place(self) -> np.ndarray:
        """Return (N,): each tensor's place in `order`."""
        return np.argsort(self.order)

    @cached_property
    def t_dw(self) -> np.ndarray:
        """Return (N,) ms: the tensor's weight gradient and its update (paper Sec. 5.1)."""
        return self.dw.amount_per_tensor() + self.t_update

    @cached_property
    def t_dy(self) -> np.ndarray:
        """Return (N,) ms: dy groups whose member nearest the output is the tensor (paper Sec. 5.1)."""
        return self.dy.amount_at_first_member(self.order)

    @cached_property
    def t_forward(self) -> np.ndarray:
        """Return (N,) ms: forward groups whose member nearest the output is the tensor."""
        return self.forward.amount_at_first_member(self.order)

    @cached_property
    def forward_ms(self) -> float:
        """Return the ms of every step, whatever is selected: the forward pass with all of it frozen."""
        return float(self.forward.amount.sum() - self._unfreeze_cost.amount.sum())

    @property
    def forward_share(self) -> float:
        """Return the forward pass' share of a step that trains every tensor."""
        return float(self.forward.amount.sum()) / self.full_ms

    @cached_property
    def full_ms(self) -> float:
        """Return a step that trains every tensor, in ms."""
        return float(
            self.forward.amount.sum() + self.dw.amount.sum() + self.dy.amount.sum() + self.t_update.sum()
        )

    @cached_property
    def alone_ms(self) -> np.ndarray:
        """Return (N,) ms: a step that trains this tensor only; infinite where it cannot be trained."""
        alone = self.forward_ms + self.t_dw + self.shared.amount_per_tensor() + self.reading_ms
        return np.where(self.connected, alone, np.inf)

    @property
    def rho_min(self) -> float:
        """Return the cost of the cheapest non-empty selection over the full step."""
        return min(1.0, float(self.alone_ms.min() / self.full_ms))  # a sum's last digit depends on its order

    @property
    def validation_errors(self) -> np.ndarray:
        """Return (K,) relative errors of the predictions of measured selections: positive where too long."""
        return np.array([v["predicted_ms"] / v["measured_ms"] - 1 for v in self.validation])

    def as_mask(self, mask: Mask) -> np.ndarray:
        """Return `mask` as (N,) bool; UsageError when its shape is another."""
        array = np.asarray(mask)
        if array.shape != (len(self),):
            raise UsageError(f"a selection mask must have shape ({len(self)},), not {array.shape}.")
        return array.astype(bool)

    def step_time(self, mask: Mask) -> float:
        """Predict the ms of a step under `mask` (N,) bool, by cost groups."""
        mask = self.as_mask(mask)
        # T(m) = T_fwd + sum of t_g over the groups g with a member in m + sum of t_update[i] over i in m:
        # TensorFlow runs a backward op exactly when the gradient of one of its tensors is wanted.
        return (
            self.forward_ms
            + self.dw.active_amount(mask)
            + self.shared.active_amount(mask)
            + float(self.t_update[mask].sum())
            + self._reading_ms_of(mask)
        )

    def _earliest(self, mask: np.ndarray) -> int:
        """Return the index of the tensor of `mask` (N,) bool that is nearest the input."""
        return int(self.order[self._place[mask].max()])

    def _reading_ms_of(self, mask: np.ndarray) -> float:
        """Return `reading_ms` of the earliest tensor of `mask` (N,) bool; 0 where it is empty."""
        return float(self.reading_ms[self._earliest(mask)]) if mask.any() else 0.0

    def is_earlier(self, mask: np.ndarray) -> np.ndarray:
        """Return (N,) bool: the tensors nearer the input than all of `mask` (N,) bool."""
        return np.asarray(self._place > self._place[mask].max(initial=-1))

    def added_reading_ms(self, mask: np.ndarray) -> np.ndarray:
        """Return (N,) ms by which reading costs a step more where a tensor joins `mask` (N,) bool."""
        return np.where(self.is_earlier(mask), self.reading_ms - self._reading_ms_of(mask), 0.0)

    def cache_write_time(self, mask: Mask) -> float:
        """Predict the ms to compute and cache a minibatch's activations under `mask`; needs `cache`."""
        assert self.cache is not None
        earliest = self._earliest(self.as_mask(mask))
        return float(self.saved_ms[earliest] + self.cache.cache_write_ms[earliest])

    def step_flops(self, mask: Mask) -> Optional[float]:
        """Predict the floating point operations of a step under `mask` (N,) bool; None where the profile has
        no count.
        """
        if self.flops is None:
            return None
        return self.flops.always + self.flops.active_amount(self.as_mask(mask))

    def to_json(self) -> Dict[str, Any]:
        """Return the profile as plain JSON values."""
        return storage.to_json(self)

    @classmethod
    def from_json(cls, value: Any) -> "Profile":
        """Read the profile that `to_json` wrote; UsageError where `value` is none."""
        return cls(**storage.fields(value))

    def save(self, path: Union[str, Path]) -> None:
        """Write the profile as JSON, completely or not at all."""
        write_json(path, self.to_json())

    @classmethod
    def load(cls, path: Union[str, Path]) -> "Profile":
        """Read a profile; UsageError, naming the file, where it is missing, no profile, or damaged."""
        return storage.read(path, cls.from_json)
