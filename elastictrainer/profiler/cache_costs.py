"""The costs of cached activations: time saved, and the cost of cache writes and reads. NumPy only."""

from dataclasses import dataclass
from typing import Any, Dict

import numpy as np

from elastictrainer.profiler.cost_groups import CostGroups


@dataclass(frozen=True)
class CacheCosts:
    """The costs of cached activations on one device, for N tensors; times are ms of a minibatch.

    "At depth i" means: tensor i is the earliest that trains, and all nearer the output may train as well.

    Attributes:
        once: forward work that can be done once while no member trains; that of no member depends on the
            inputs alone, such as augmentation.
        once_flops: its floating point operations.
        cut_mb: (N,) MB that are stored of a minibatch at depth i.
        recompute_ms: (N,) frozen work behind the cut at depth i, which a cached step does again.
        write_ms, write_ms_per_mb: to write a minibatch to the cache.
        read_ms, read_ms_per_mb: to read one from the cache.
        slower: by what share the rest of a cached step is slower than the same work in a whole step; it
            begins with cold caches.
    """

    once: CostGroups
    once_flops: CostGroups
    cut_mb: np.ndarray
    recompute_ms: np.ndarray
    write_ms: float
    write_ms_per_mb: float
    read_ms: float
    read_ms_per_mb: float
    slower: float = 0.0

    @property
    def cache_write_ms(self) -> np.ndarray:
        """Return (N,) ms to write the cut's tensors of a minibatch at depth i."""
        return self.write_ms + self.write_ms_per_mb * self.cut_mb

    @property
    def cache_read_ms(self) -> np.ndarray:
        """Return (N,) ms to read them, and to compute the work behind the cut; without `slower`."""
        return self.read_ms + self.read_ms_per_mb * self.cut_mb + self.recompute_ms

    def to_json(self) -> Dict[str, Any]:
        """Return plain JSON values."""
        return {
            "once": self.once.to_json(),
            "once_flops": self.once_flops.to_json("flops"),
            "cut_mb": self.cut_mb.tolist(),
            "recompute_ms": self.recompute_ms.tolist(),
            **{name: getattr(self, name) for name in _NUMBERS},
        }

    @classmethod
    def from_json(cls, tensors: int, value: Dict[str, Any]) -> "CacheCosts":
        """Read the costs that `to_json` wrote, for so many tensors."""
        return cls(
            CostGroups.from_json(tensors, value["once"]),
            CostGroups.from_json(tensors, value["once_flops"], "flops"),
            np.array(value["cut_mb"], np.float64).reshape(tensors),
            np.array(value["recompute_ms"], np.float64).reshape(tensors),
            **{name: float(value[name]) for name in _NUMBERS},
        )


_NUMBERS = ("write_ms", "write_ms_per_mb", "read_ms", "read_ms_per_mb", "slower")
