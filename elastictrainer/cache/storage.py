"""The storage of cached activations: rows in memory or in a file, read in any order. NumPy only."""

import os
import shutil
import tempfile
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, List, Optional, Sequence, Tuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_ALIGNMENT = 64  # bytes: a processor reads a column from where a cache line begins
_SPARE = 0.1  # of the free disk space stays free: other programs write too


class CacheError(Exception):
    """The cache cannot be made, written or read."""


class NotCacheable(CacheError):
    """The reason why the activations of a selection cannot, or need not, be cached."""


def folder_for(size: int, memory: int, folder: Optional[Path]) -> Optional[Path]:
    """Return the folder of the file for a cache of `size` bytes; None where it fits into `memory` bytes.

    It is `folder`, which is made, or without one the system's for temporary files. NotCacheable where it fits
    neither into memory nor on the disk, or the folder cannot be made.
    """
    if size <= memory:
        return None
    folder = folder or Path(tempfile.gettempdir())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise NotCacheable(f"{folder} cannot hold {1e-9 * size:.1f} GB ({error.strerror})") from None
    if size > (1 - _SPARE) * free:
        raise NotCacheable(f"a cache of {1e-9 * size:.1f} GB fits neither into memory nor on the disk")
    return folder


@dataclass(frozen=True)
class Column:
    """One array that is stored of each example; `dtype` is a NumPy dtype's name."""

    shape: Tuple[int, ...]
    dtype: str

    @property
    def bytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize


def row_size(columns: Sequence[Column]) -> int:
    return sum(-(-column.bytes // _ALIGNMENT) * _ALIGNMENT for column in columns)


class CacheStorage:
    """At most `capacity` rows of the same columns, written in order and read in any order.

    They are in memory, or in a file in `folder`. It has no name: it is gone with the process, however that
    ends. `ends` are the numbers of rows after each minibatch that was added.
    """

    def __init__(self, columns: Sequence[Column], capacity: int, folder: Optional[Path] = None):
        """Make it empty; CacheError where the file cannot be made as large."""
        self.columns, self.capacity, self.folder = list(columns), capacity, folder
        self.ends: List[int] = []
        self._offsets = [row_size(self.columns[:k]) for k in range(len(self.columns))]
        self._row_bytes = row_size(self.columns)
        self._file: Any = None
        self._place = threading.Lock()  # held while the file's position is in use
        if folder is None:
            self._memory = np.empty((capacity, self._row_bytes), np.uint8)
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = tempfile.TemporaryFile(buffering=0, dir=folder)
            if hasattr(os, "posix_fallocate"):  # macOS has none; there a full disk is noticed when it is full
                os.posix_fallocate(self._file.fileno(), 0, max(1, self.bytes))
        except OSError as error:
            self.close()
            raise CacheError(f"{folder}: {error.strerror}") from None

    @property
    def rows(self) -> int:
        return self.ends[-1] if self.ends else 0

    @property
    def bytes(self) -> int:
        return self.capacity * self._row_bytes

    @property
    def location(self) -> str:
        """Return where the rows are, for a message."""
        return "in memory" if self.folder is None else f"in {self.folder}"

    def add(self, values: Sequence[Array]) -> None:
        """Append the examples of a minibatch, for each column (batch, *shape), of its dtype.

        CacheError where the file cannot be written, or there are more rows than the capacity.
        """
        count = len(values[0])
        if self.rows + count > self.capacity:
            raise CacheError(f"the epoch has more than {self.capacity} examples")
        target = np.empty((count, self._row_bytes), np.uint8)
        if self._file is None:
            target = self._memory[self.rows : self.rows + count]
        for column, view, value in zip(self.columns, self._views(target), values):
            if value.dtype != column.dtype or value.shape != (count, *column.shape):
                raise CacheError(f"an example changed from {column} to {value.dtype} {value.shape[1:]}")
            view[...] = value
        if self._file is not None:
            try:
                with self._place:
                    self._file.seek(self.rows * self._row_bytes)
                    written = 0
                    while written < target.nbytes:  # the system takes 2 GB at most in one call
                        taken = self._file.write(target.reshape(-1)[written:].data)
                        if not taken:
                            break
                        written += taken
            except OSError as error:
                raise CacheError(f"caching an example failed: {error.strerror}") from None
            if written != target.nbytes:
                raise CacheError("caching an example failed: the disk is full")
        self.ends.append(self.rows + count)

    def read(self, rows: NDArray[np.intp]) -> List[Array]:
        """Read rows: for each column (len(rows), *shape). CacheError where the file cannot be read."""
        if self._file is None:
            return self._views(np.take(self._memory, rows, axis=0))
        target = np.empty((len(rows), self._row_bytes), np.uint8)
        for row, k in zip(target, rows):
            try:
                with self._place:
                    self._file.seek(int(k) * self._row_bytes)
                    read = self._file.readinto(row.data)
            except OSError as error:
                raise CacheError(f"reading the cached examples failed: {error.strerror}") from None
            if read != self._row_bytes:
                raise CacheError(f"cached example {k} cannot be read: the file ends early")
        return self._views(target)

    def converted(self, columns: Sequence[Column], folder: Optional[Path]) -> "CacheStorage":
        """Return the same rows in wider dtypes, in memory or in a file in `folder`; or CacheError."""
        other = CacheStorage(columns, self.capacity, folder)
        for rows in order(self.ends, None, 0) if self.ends else ():
            other.add([value.astype(column.dtype) for value, column in zip(self.read(rows), columns)])
        return other

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._memory = np.empty((0, 0), np.uint8)

    def _views(self, rows: NDArray[np.uint8]) -> List[Array]:
        return [
            rows[:, offset : offset + column.bytes].view(column.dtype).reshape(len(rows), *column.shape)
            for offset, column in zip(self._offsets, self.columns)
        ]


def order(ends: Sequence[int], seed: Optional[int], epoch: int) -> List[NDArray[np.intp]]:
    """Return the rows of each minibatch of an epoch: all examples once; `ends` are as in `CacheStorage`.

    Shuffled, in another order for each epoch; the minibatches as written where there is no seed.
    """
    shuffled = np.arange(ends[-1])
    if seed is not None:
        shuffled = np.random.default_rng([seed, epoch]).permutation(ends[-1])
    return np.split(shuffled, ends[:-1])


class CacheReader:
    """Reads the minibatches of a cache, the next one while the present one is trained on."""

    def __init__(self, storage: CacheStorage, seed: Optional[int]):
        """Take a complete storage, and the seed of the orders; see `order`."""
        self._storage, self._seed = storage, seed
        self._thread = ThreadPoolExecutor(1, "cache-reader")
        self._ahead: Optional[Tuple[Tuple[int, int], "Future[List[Array]]"]] = None
        self._orders: Tuple[int, List[NDArray[np.intp]]] = (-1, [])

    def minibatch(self, epoch: int, batch: int) -> List[Array]:
        """Return minibatch number `batch` of an epoch, and read the one after it ahead; or CacheError.

        Past its last minibatch a cache begins again.
        """
        wanted, ahead = (epoch, batch), self._ahead
        if ahead is None or ahead[0] != wanted:
            ahead = wanted, self._read(*wanted)
        following = (epoch, batch + 1) if batch + 1 < len(self._storage.ends) else (epoch + 1, 0)
        self._ahead = following, self._read(*following)
        return ahead[1].result()

    def close(self) -> None:
        self._thread.shutdown()

    def _read(self, epoch: int, batch: int) -> "Future[List[Array]]":
        if self._orders[0] != epoch:
            self._orders = epoch, order(self._storage.ends, self._seed, epoch)
        rows = self._orders[1]
        return self._thread.submit(self._storage.read, rows[batch % len(rows)])
