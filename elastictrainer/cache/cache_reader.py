"""The order in which cached examples are read, ahead of the step that needs them. NumPy only."""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, List, Optional, Sequence, Tuple

import numpy as np
from numpy.typing import NDArray

from elastictrainer.cache.cache_storage import CacheStorage


def order(ends: Sequence[int], seed: Optional[int], epoch: int) -> List[NDArray[np.intp]]:
    """Return the rows of each minibatch of an epoch: all examples once.

    Shuffled, in another order for each epoch; the minibatches as written where there is no seed.

    Args:
        ends: as in `CacheStorage`; a minibatch has as many examples as the written one of its number.
    """
    shuffled = np.arange(ends[-1])
    if seed is not None:
        shuffled = np.random.default_rng([seed, epoch]).permutation(ends[-1])
    return np.split(shuffled, ends[:-1])


class CacheReader:
    """Reads the minibatches of a cache, the next one while the present one is trained on."""

    def __init__(self, storage: CacheStorage, seed: Optional[int]):
        """
        Args:
            storage: complete.
            seed: of the orders; see `order`.
        """
        self._storage, self._seed = storage, seed
        self._thread = ThreadPoolExecutor(1, "cache-reader")
        self._ahead: Optional[Tuple[Tuple[int, int], "Future[List[NDArray[Any]]]"]] = None
        self._orders: Tuple[int, List[NDArray[np.intp]]] = (-1, [])

    def minibatch(self, epoch: int, batch: int) -> List[NDArray[Any]]:
        """Return minibatch number `batch` of an epoch, and read the next one ahead; a short epoch repeats.

        Raises:
            CacheError: it cannot be read.
        """
        wanted, ahead = (epoch, batch), self._ahead
        if ahead is None or ahead[0] != wanted:
            ahead = wanted, self._read(*wanted)
        self._ahead = (epoch, batch + 1), self._read(epoch, batch + 1)
        return ahead[1].result()

    def close(self) -> None:
        """Wait for what is being read."""
        self._thread.shutdown()

    def _read(self, epoch: int, batch: int) -> "Future[List[NDArray[Any]]]":
        if self._orders[0] != epoch:
            self._orders = epoch, order(self._storage.ends, self._seed, epoch)
        rows = self._orders[1]
        return self._thread.submit(self._storage.read, rows[batch % len(rows)])
