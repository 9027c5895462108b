"""Which tensors belong to which cost group, as a bit matrix with a time per row. NumPy only."""

from typing import Any, Dict, Iterable, Iterator, List, Sequence, Tuple

import numpy as np

from elastictrainer.errors import UsageError

_ROWS_AT_ONCE = 1024
_MOST_CELLS = 10**9  # as many groups x tensors as fit into 1 GB while a file is read


class Membership:
    """G groups over N tensors: (G, N) bits, and (G,) milliseconds.

    A chain of 10,000 tensors has 10,000 nested groups; as bits they take 12.5 MB.
    """

    def __init__(self, tensors: int, bits: np.ndarray, ms: Sequence[float]):
        """
        Args:
            tensors: N.
            bits: (G, ceil(N / 8)) uint8, as `numpy.packbits` makes them.
            ms: (G,) the time of each group.
        """
        self.tensors = tensors
        self.bits = bits
        self.ms = np.asarray(ms, np.float64)

    @classmethod
    def from_sets(cls, tensors: int, sets: Sequence[Iterable[int]], ms: Sequence[float]) -> "Membership":
        """Groups from lists of member indices."""
        rows = np.zeros((len(sets), tensors), bool)
        for row, members in zip(rows, sets):
            row[list(members)] = True
        return cls(tensors, np.packbits(rows, axis=1), ms)

    @classmethod
    def singletons(cls, ms: Sequence[float]) -> "Membership":
        """One group per tensor, that tensor its only member."""
        return cls(len(ms), np.packbits(np.eye(len(ms), dtype=bool), axis=1), ms)

    @classmethod
    def prefixes(cls, ms: Sequence[float]) -> "Membership":
        """Group k has the members 0..k."""
        n = len(ms)
        bits = np.concatenate(
            [
                np.packbits(
                    np.arange(n)[None, :] <= np.arange(low, min(low + _ROWS_AT_ONCE, n))[:, None], axis=1
                )
                for low in range(0, n, _ROWS_AT_ONCE)
            ]
        )
        return cls(n, bits, ms)

    def __len__(self) -> int:
        return len(self.ms)

    def rows(self, chosen: np.ndarray) -> "Membership":
        """The groups of `chosen` (G,) bool."""
        return Membership(self.tensors, self.bits[chosen], self.ms[chosen])

    def joined(self, other: "Membership") -> "Membership":
        """These groups and those of `other`."""
        return Membership(
            self.tensors, np.concatenate([self.bits, other.bits]), np.concatenate([self.ms, other.ms])
        )

    def scaled(self, factor: float) -> "Membership":
        """The same groups, each time multiplied by `factor`."""
        return Membership(self.tensors, self.bits, self.ms * factor)

    def filled(self) -> np.ndarray:
        """(G,) bool: the group has a member."""
        return self.bits.any(axis=1)

    def _blocks(self) -> Iterator[Tuple[slice, np.ndarray]]:
        """The rows as (rows, N) bool, some at a time."""
        for low in range(0, len(self), _ROWS_AT_ONCE):
            rows = slice(low, min(low + _ROWS_AT_ONCE, len(self)))
            yield rows, np.unpackbits(self.bits[rows], axis=1, count=self.tensors).view(bool)

    def sets(self) -> Iterator[Tuple[List[int], float]]:
        """Each group as (ascending members, ms)."""
        for rows, block in self._blocks():
            for row, ms in zip(block, self.ms[rows]):
                yield np.flatnonzero(row).tolist(), float(ms)

    def touched(self, mask: np.ndarray) -> np.ndarray:
        """(G,) bool: the group has a member in `mask` (N,) bool."""
        return (self.bits & np.packbits(mask)).any(axis=1)

    def groups_per_tensor(self) -> np.ndarray:
        """(N,) int: how many groups each tensor is in."""
        return sum((block.sum(axis=0) for _, block in self._blocks()), np.zeros(self.tensors, np.int64))

    def time_per_tensor(self, rows: np.ndarray = None) -> np.ndarray:
        """(N,) ms: the summed time of the groups each tensor is in; of those in `rows` (G,) bool only, if given."""
        ms = self.ms if rows is None else np.where(rows, self.ms, 0.0)
        return sum((ms[part] @ block for part, block in self._blocks()), np.zeros(self.tensors))

    def time_at_first_member(self, order: np.ndarray) -> np.ndarray:
        """(N,) ms: each group's time at its first member in `order` (N,); groups without members are left out."""
        times = np.zeros(self.tensors)
        for rows, block in self._blocks():
            ordered = block[:, order]
            filled = ordered.any(axis=1)
            np.add.at(times, order[ordered.argmax(axis=1)[filled]], self.ms[rows][filled])
        return times

    def to_json(self, amount: str = "ms") -> List[Dict[str, Any]]:
        """Each group as {"members": [[first, last], ...], "ms"}: runs of indices, both ends included.

        `amount` is another name for what is called "ms", where the groups count something else than time.
        """
        rows = []
        for members, ms in self.sets():
            breaks = np.flatnonzero(np.diff(members) > 1) if members else []
            first = [members[0], *(members[b + 1] for b in breaks)] if members else []
            last = [*(members[b] for b in breaks), members[-1]] if members else []
            rows.append({"members": [list(run) for run in zip(first, last)], amount: ms})
        return rows

    @classmethod
    def from_json(cls, tensors: int, rows: List[Dict[str, Any]], amount: str = "ms") -> "Membership":
        """The groups that `to_json` wrote. UsageError for an index or a time out of range."""
        if len(rows) * tensors > _MOST_CELLS:
            raise UsageError(f"{len(rows)} cost groups of {tensors} tensors are too many.")
        sets = []
        for row in rows:
            members: List[int] = []
            for first, last in row["members"]:
                if not 0 <= first <= last < tensors:
                    raise UsageError(f"a cost group names tensors {first} to {last}, there are {tensors}.")
                members.extend(range(first, last + 1))
            sets.append(members)
        return cls.from_sets(tensors, sets, np.array([row[amount] for row in rows], np.float64))
