"""The memory model: what a training step takes under a selection of tensors. NumPy only."""

from dataclasses import dataclass, replace
from typing import Any, Dict, Optional

import numpy as np

from elastictrainer.profiler.cost_groups import CostGroups


@dataclass(frozen=True)
class StepMemory:
    """The memory of a training step on one device, in bytes.

    A step holds, when its forward pass ends, every tensor that a backward op needs which runs under the
    selection: like its time, a sum over groups of tensors.

    Attributes:
        held: forward results, by the tensors whose gradients need them, for `batch` examples.
        graph: bytes of the compiled step itself, by the tensors for which it has the ops.
        always: what the ops of every step take, and an allowance that was measured: what TensorFlow holds
            besides, depending on the order of its ops and on its kernels.
        forward: the most that the forward pass holds while nothing is kept for gradients, for `batch`
            examples.
        loaded: resident memory of the process before its first step: TensorFlow, weights, slots.
        batch: examples of the minibatch.
        measured: the most that a full step took above `loaded` and its slots; None: the allowance is an
            estimate.
        unknown: held tensors whose size the graph does not tell; the allowance alone has room for them.
        slots: bytes of the optimizer's slots, by the tensors that have them once they train.
    """

    held: CostGroups
    graph: CostGroups
    always: float
    forward: float
    loaded: float
    batch: int
    measured: Optional[float] = None
    unknown: int = 0
    slots: Optional[CostGroups] = None

    def step_bytes(self, mask: np.ndarray) -> float:
        """Return the most bytes that a step under `mask` (N,) bool takes above `loaded`."""
        held = self.held.active_amount(mask)
        return self.always + self._unscaled.active_amount(mask) + max(self.forward, held)

    def total(self, mask: np.ndarray) -> float:
        """Return the resident memory of a process that does nothing but steps under `mask` (N,) bool."""
        return self.loaded + self.step_bytes(mask)

    @property
    def alone(self) -> np.ndarray:
        """Return (N,) bytes that a step takes which trains this tensor only."""
        held = np.maximum(self.forward, self.held.amount_per_tensor())
        return np.asarray(self.always + self._unscaled.amount_per_tensor() + held)

    def room(self, limit: float) -> float:
        """Return the bytes that `groups` may have in a process of `limit`; 0: no forward pass fits."""
        left = limit - self.loaded - self.always
        return left if left > self.forward else 0.0

    @property
    def groups(self) -> CostGroups:
        """Return the memory that a selection adds: `held`, `graph` and `slots` together."""
        return self.held.joined(self._unscaled)

    @property
    def _unscaled(self) -> CostGroups:
        """Return what a selection adds whatever the size of the minibatch."""
        return self.graph if self.slots is None else self.graph.joined(self.slots)

    def undone(self) -> "StepMemory":
        """Return the memory of steps that undo their updates, and so leave no slots."""
        return replace(self, slots=None)

    def for_batch(self, batch: int) -> "StepMemory":
        """Return the same for minibatches of so many examples."""
        share = batch / self.batch
        return replace(self, held=self.held.scaled(share), forward=self.forward * share, batch=batch)

    def largest_batch(self, mask: np.ndarray, limit: float) -> int:
        """Return examples, up to `batch`, with which a step under `mask` stays within `limit`; 0: not with
        one.
        """
        fitting = (n for n in range(self.batch, 0, -1) if self.for_batch(n).total(mask) <= limit)
        return next(fitting, 0)

    def to_json(self) -> Dict[str, Any]:
        """Return plain JSON values."""
        stored = (name for name in _GROUPS if getattr(self, name) is not None)
        groups = {name: getattr(self, name).to_json("bytes") for name in stored}
        return {**groups, **{name: getattr(self, name) for name in _NUMBERS}}

    @classmethod
    def from_json(cls, tensors: int, value: Dict[str, Any]) -> "StepMemory":
        """Read the memory profile that `to_json` wrote, for so many tensors."""
        stored = (name for name in _GROUPS if name in value)
        groups: Dict[str, Any] = {n: CostGroups.from_json(tensors, value[n], "bytes") for n in stored}
        return cls(**groups, **{name: value[name] for name in _NUMBERS})


_GROUPS = ("held", "graph", "slots")
_NUMBERS = ("always", "forward", "loaded", "batch", "measured", "unknown")
