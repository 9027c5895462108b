"""Cost groups: which tensors belong to each, as a bit matrix with an amount per row. NumPy only.

And the costs of cached activations, which have such groups.
"""

from dataclasses import dataclass, replace
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Sequence, Tuple, Union

import numpy as np
from numpy.typing import NDArray

from elastictrainer.errors import UsageError

_ROWS_AT_ONCE = 1024  # unpacked: 10 MB for 10,000 tensors
_MOST_CELLS = 10**9  # as many groups x tensors as fit into 1 GB while a file is read

Numbers = NDArray[np.float64]
Mask = NDArray[np.bool_]
Amounts = Union[Sequence[float], Numbers]
Json = Dict[str, Any]  # values of a file
Rows = List[Json]


class CostGroups:
    """G groups over N tensors: (G, N) bits, and (G,) amounts of work, in ms or in FLOPs.

    The work of a group runs when at least one of its members is selected. A chain of 10,000 tensors has
    10,000 nested groups; as bits they take 12.5 MB.
    """

    def __init__(self, tensors: int, bits: NDArray[np.uint8], amount: Amounts):
        """`bits` are (G, ceil(N / 8)) uint8, as `numpy.packbits` makes them, N `tensors`; `amount` (G,)."""
        self.tensors = tensors
        self.bits = bits
        self.amount = np.asarray(amount, np.float64)

    @classmethod
    def from_sets(cls, tensors: int, sets: Sequence[Iterable[int]], amount: Amounts) -> "CostGroups":
        """Make groups from lists of member indices."""
        rows = np.zeros((len(sets), tensors), bool)
        for row, members in zip(rows, sets):
            row[list(members)] = True
        return cls(tensors, np.packbits(rows, axis=1), amount)

    @classmethod
    def from_bits(cls, tensors: int, amounts: Mapping[int, float]) -> "CostGroups":
        """Make a group for each set of tensors; tensor i is bit i of the key."""
        return cls.from_sets(tensors, [members_of(bits) for bits in amounts], list(amounts.values()))

    @classmethod
    def singletons(cls, amount: Amounts) -> "CostGroups":
        """Make one group per tensor, that tensor its only member."""
        return cls(len(amount), np.packbits(np.eye(len(amount), dtype=bool), axis=1), amount)

    @classmethod
    def prefixes(cls, amount: Amounts) -> "CostGroups":
        """Make groups of which group k has the members 0..k."""
        return cls(len(amount), np.packbits(np.tri(len(amount), dtype=bool), axis=1), amount)

    def __len__(self) -> int:
        return len(self.amount)

    def rows(self, chosen: Mask) -> "CostGroups":
        return CostGroups(self.tensors, self.bits[chosen], self.amount[chosen])

    def joined(self, other: "CostGroups") -> "CostGroups":
        return CostGroups(
            self.tensors, np.concatenate([self.bits, other.bits]), np.concatenate([self.amount, other.amount])
        )

    def scaled(self, factor: Union[float, Numbers]) -> "CostGroups":
        """Return the same groups with `factor` times the amounts: one for all, or (G,)."""
        return CostGroups(self.tensors, self.bits, self.amount * factor)

    def has_members(self) -> Mask:
        return self.bits.any(axis=1)

    @property
    def always(self) -> float:
        """Return the summed amount of the groups of no member: work of every step."""
        return float(self.amount[~self.has_members()].sum())

    def _blocks(self) -> Iterator[Tuple[slice, Mask]]:
        """Yield the rows as (rows, N) bool, `_ROWS_AT_ONCE` at a time."""
        for low in range(0, len(self), _ROWS_AT_ONCE):
            rows = slice(low, min(low + _ROWS_AT_ONCE, len(self)))
            yield rows, np.unpackbits(self.bits[rows], axis=1, count=self.tensors).view(bool)

    def sets(self) -> Iterator[Tuple[List[int], float]]:
        """Yield each group as (ascending members, amount)."""
        for rows, block in self._blocks():
            for row, amount in zip(block, self.amount[rows]):
                yield np.flatnonzero(row).tolist(), float(amount)

    def active_groups(self, mask: Mask) -> Mask:
        """Return (G,) bool: the groups that have a member in `mask` (N,) bool."""
        return (self.bits & np.packbits(mask)).any(axis=1)

    def active_amount(self, mask: Mask) -> float:
        """Return the summed amount of the groups that have a member in `mask` (N,) bool."""
        return float(self.amount[self.active_groups(mask)].sum())

    def members_in(self, mask: Mask) -> NDArray[np.int64]:
        """Return (G,) int: how many members of each group are in `mask` (N,) bool."""
        counts = [block[:, mask].sum(axis=1) for _, block in self._blocks()]
        return np.concatenate([np.zeros(0, np.int64), *counts])

    def without(self, tensor: int) -> Mask:
        """Return (G,) bool: the groups of which that tensor is no member."""
        return self.members_in(np.arange(self.tensors) == tensor) == 0

    def groups_per_tensor(self) -> NDArray[np.int64]:
        """Return (N,) int: how many groups each tensor is in."""
        return sum((block.sum(axis=0) for _, block in self._blocks()), np.zeros(self.tensors, np.int64))

    def amount_per_tensor(self) -> Numbers:
        """Return (N,): the summed amount of the groups each tensor is in."""
        return sum((self.amount[rows] @ block for rows, block in self._blocks()), np.zeros(self.tensors))

    def amount_at_first_member(self, order: NDArray[np.int64]) -> Numbers:
        """Return (N,): each group's amount at its first member in `order` (N,); none for an empty group."""
        amounts = np.zeros(self.tensors)
        for rows, block in self._blocks():
            ordered = block[:, order]
            inside = ordered.any(axis=1)
            np.add.at(amounts, order[ordered.argmax(axis=1)[inside]], self.amount[rows][inside])
        return amounts

    def to_json(self, key: str = "ms") -> Rows:
        """Return each group as {"members": [[first, last], ...], key: amount}; runs include both ends."""
        rows: Rows = []
        for members, amount in self.sets():
            runs = np.split(np.array(members, int), np.flatnonzero(np.diff(members) > 1) + 1)
            rows.append({"members": [[int(run[0]), int(run[-1])] for run in runs if len(run)], key: amount})
        return rows

    @classmethod
    def from_json(cls, tensors: int, rows: Rows, key: str = "ms") -> "CostGroups":
        """Read the groups that `to_json` wrote. UsageError for an index out of range."""
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
        return cls.from_sets(tensors, sets, np.array([row[key] for row in rows], np.float64))


def members_of(bits: int) -> List[int]:
    return [i for i in range(bits.bit_length()) if bits >> i & 1]


@dataclass(frozen=True)
class CacheCosts:
    """The costs of cached activations on one device, for N tensors; times are ms of a minibatch.

    "At depth i" means: tensor i is the earliest that trains, and all nearer the output may train as well.
    """

    # Forward work that can be done once while no member trains, and its floating point operations; that of no
    # member depends on the inputs alone, such as augmentation.
    once: CostGroups
    once_flops: CostGroups
    cut_mb: Numbers  # (N,) MB that are stored of a minibatch at depth i
    recompute_ms: Numbers  # (N,) frozen work behind the cut at depth i, which a cached step does again
    write_ms: float  # to write a minibatch to the cache
    write_ms_per_mb: float
    read_ms: float  # to read one from the cache
    read_ms_per_mb: float
    slower: float = 0.0  # share by which cold caches slow the rest of a cached step

    @property
    def cache_write_ms(self) -> Numbers:
        return self.write_ms + self.write_ms_per_mb * self.cut_mb

    @property
    def cache_read_ms(self) -> Numbers:
        """Return (N,) ms to read them, and to compute the work behind the cut; without `slower`."""
        return self.read_ms + self.read_ms_per_mb * self.cut_mb + self.recompute_ms

    def scaled(self, times: float, sizes: float) -> "CacheCosts":
        """Return the same with forward work `times` as long, and FLOPs and bytes `sizes` as many."""
        return replace(
            self,
            once=self.once.scaled(times),
            once_flops=self.once_flops.scaled(sizes),
            cut_mb=self.cut_mb * sizes,
            recompute_ms=self.recompute_ms * times,
        )

    def to_json(self) -> Json:
        return {
            "once": self.once.to_json(),
            "once_flops": self.once_flops.to_json("flops"),
            "cut_mb": self.cut_mb.tolist(),
            "recompute_ms": self.recompute_ms.tolist(),
            **{name: getattr(self, name) for name in _NUMBERS},
        }

    @classmethod
    def from_json(cls, tensors: int, value: Json) -> "CacheCosts":
        return cls(
            CostGroups.from_json(tensors, value["once"]),
            CostGroups.from_json(tensors, value["once_flops"], "flops"),
            np.array(value["cut_mb"], np.float64).reshape(tensors),
            np.array(value["recompute_ms"], np.float64).reshape(tensors),
            **{name: float(value[name]) for name in _NUMBERS},
        )


_NUMBERS = ("write_ms", "write_ms_per_mb", "read_ms", "read_ms_per_mb", "slower")
