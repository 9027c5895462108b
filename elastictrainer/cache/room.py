"""The room for a cache, in memory or on the disk, and the cut of a step that fits into it."""

import shutil
import tempfile
from pathlib import Path
from typing import Any, Optional, Tuple

from elastictrainer.cache.cache_storage import NotCacheable
from elastictrainer.cache.cut import Cut
from elastictrainer.cache.op_costs import OpCost
from elastictrainer.cache.settings import CacheSettings
from elastictrainer.cache.split import TracedStep
from elastictrainer.cache.storable import minibatch_mb, row_bytes

_SPARE = 0.1  # of the free disk space stays free: other programs write too
_ATTEMPTS = 8  # to find a cut with fewer bytes: the last one's cost 4000 times as much
_FEWER = 4.0  # how much dearer bytes become while a cache has too many


def cut_that_fits(
    step: TracedStep,
    op_cost: OpCost,
    ms_per_mb: float,
    batch: int,
    capacity: int,
    settings: CacheSettings,
) -> Tuple[Cut, Optional[Path]]:
    """Find the least-cost cut whose cache fits, and the folder of the cache's file; None: it is in memory.

    Args:
        step: to cut.
        op_cost: of the model's forward pass.
        ms_per_mb: to read stored activations.
        batch: examples of a minibatch.
        capacity: examples to store.
        settings: of the cache.

    Raises:
        NotCacheable: no cut fits, or none saves time.
    """

    def read_ms(tensor: Any) -> float:
        return minibatch_mb(tensor, batch) * ms_per_mb

    # Where the cheapest cut is too large, make bytes dearer until one fits: it then recomputes more.
    size = 0
    for attempt in range(_ATTEMPTS):
        cut = step.cut(op_cost, lambda tensor: read_ms(tensor) * _FEWER**attempt)  # noqa: B023
        saved_ms = sum(op_cost(step.ops.operations[k]) for k in cut.done_once)
        if not cut.tensors or saved_ms <= sum(map(read_ms, cut.tensors)):
            raise NotCacheable("reading cached activations would take as long as computing them")
        size = capacity * sum(row_bytes(tensor, settings.dtype) for tensor in cut.tensors)
        if size <= settings.kept_bytes:
            return cut, None
        folder = settings.folder or Path(tempfile.gettempdir())
        if size <= (1 - _SPARE) * _free_bytes(folder, size):
            return cut, folder
    raise NotCacheable(f"a cache of {1e-9 * size:.1f} GB fits neither into memory nor on the disk")


def _free_bytes(folder: Path, size: int) -> int:
    """Return the free bytes of the disk that `folder`, which is made, is on; `size` is for the error."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return shutil.disk_usage(folder).free
    except OSError as error:
        raise NotCacheable(f"{folder} cannot hold {1e-9 * size:.1f} GB ({error.strerror})") from None
