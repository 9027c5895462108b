"""The profile: the time model, which says what a training step costs under a selection. NumPy only."""

import dataclasses
import json
import shlex
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, List, Optional, Sequence, Tuple, Union

import numpy as np
from numpy.typing import NDArray

from elastictrainer.errors import UsageError, shortened
from elastictrainer.profiler.cost_groups import Amounts, CacheCosts, CostGroups, Json, Mask, Numbers
from elastictrainer.profiler.memory import StepMemory
from elastictrainer.runs.files import loads, write_json

FORMAT = "elastictrainer-profile"
VERSION = 2  # raised by a change after which a program of another version would misread a file
_LONGEST_STEP_MS = 1e9  # no step takes eleven days; such sums come from a damaged file
_GROUPS = ("dw", "dy", "forward")

AnyMask = Union[Sequence[bool], Mask]  # (N,): True for a selected tensor


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
    t_update: Numbers
    connected: Mask
    estimated: Mask
    frozen_saving: float = 0.0
    overlap: float = 0.0
    flops: Optional[CostGroups] = None
    cache: Optional[CacheCosts] = None
    memory: Optional[StepMemory] = None
    metadata: Json = field(default_factory=dict)
    validation: List[Json] = field(default_factory=list)

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
        if np.size(t_dw) != n or np.size(t_dy) != n:
            raise UsageError(
                f"{n} names, {np.size(t_dw)} values of t_dw, {np.size(t_dy)} of t_dy: they must agree."
            )
        return cls(
            names=tuple(names),
            shapes=tuple(() for _ in names),
            dw=CostGroups.singletons(t_dw),
            dy=CostGroups.prefixes(t_dy),
            forward=CostGroups.from_sets(n, [()], [forward_ms]),
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
        """Return the same profile for cached steps, with their times and FLOPs; as it is without `cache`."""
        attributes = {attribute.name: getattr(self, attribute.name) for attribute in dataclasses.fields(self)}
        return _CachedProfile(**attributes) if self.cache else self

    @cached_property
    def _unfreeze_cost(self) -> CostGroups:
        """Return by how much each forward group costs more while a member is selected."""
        return self.forward.rows(self.forward.has_members()).scaled(self.frozen_saving)

    @cached_property
    def forward_ms(self) -> float:
        """Return the ms of every step, whatever is selected: the forward pass with all of it frozen."""
        return float(self.forward.amount.sum() - self._unfreeze_cost.amount.sum())

    @cached_property
    def reading_ms(self) -> Numbers:
        """Return (N,) ms that reading the cache costs a step whose earliest tensor is this one: none here."""
        return np.zeros(len(self))

    @cached_property
    def shared(self) -> CostGroups:
        """Return the groups that tensors have in common: dy work, and forward work that unfreezing adds."""
        return self.dy.joined(self._unfreeze_cost)

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """Return (N,) indices from the output inwards: fewest dy groups first; then later tensors first."""
        return np.lexsort((-np.arange(len(self)), self.dy.groups_per_tensor()))

    @cached_property
    def _place(self) -> NDArray[np.int64]:
        """Return (N,): each tensor's place in `order`."""
        return np.argsort(self.order)

    @cached_property
    def t_alone(self) -> Numbers:
        """Return (N,) ms: the backward work of this tensor alone, and its update."""
        return self.dw.amount_per_tensor() + self.t_update

    @cached_property
    def t_dw(self) -> Numbers:
        """Return (N,) ms: the tensor's weight gradient and its update (paper Sec. 5.1).

        What a folded kernel's gradient shares with that of its norm's gamma is the kernel's.
        """
        # The tensor nearest the input needs all activation gradients; other groups are a layer's own.
        own = self.dy.rows(self.dy.without(self.order[-1]))
        return self.t_alone + own.amount_at_first_member(self.order[::-1])

    @cached_property
    def t_dy(self) -> Numbers:
        """Return (N,) ms: dy groups whose member nearest the output is the tensor (paper Sec. 5.1)."""
        return self.dy.rows(~self.dy.without(self.order[-1])).amount_at_first_member(self.order)

    @cached_property
    def t_forward(self) -> Numbers:
        """Return (N,) ms: forward groups whose member nearest the output is the tensor."""
        return self.forward.amount_at_first_member(self.order)

    @property
    def forward_share(self) -> float:
        """Return the forward pass' share of a step that trains every tensor."""
        return float(self.forward.amount.sum()) / self.full_ms

    @cached_property
    def full_ms(self) -> float:
        """Return a step that trains every tensor, in ms."""
        groups = sum(getattr(self, key).amount.sum() for key in _GROUPS)
        return float(groups + self.t_update.sum())

    @cached_property
    def alone_ms(self) -> Numbers:
        """Return (N,) ms: a step that trains this tensor only; infinite where it cannot be trained."""
        return np.where(self.connected, self._alone_unread_ms + self.reading_ms, np.inf)

    @cached_property
    def _alone_unread_ms(self) -> Numbers:
        """Return (N,) ms: the same without reading, as if the tensor could be trained."""
        return self.forward_ms + self.t_alone + self.shared.amount_per_tensor()

    @property
    def rho_min(self) -> float:
        """Return the cost of the cheapest non-empty selection over the full step."""
        return min(1.0, float(self.alone_ms.min() / self.full_ms))  # a sum's last digit depends on its order

    @property
    def validation_errors(self) -> Numbers:
        """Return (K,) relative errors of the predictions of measured selections: positive where too long."""
        return np.array([v["predicted_ms"] / v["measured_ms"] - 1 for v in self.validation])

    def as_mask(self, mask: AnyMask) -> Mask:
        """Return `mask` as (N,) bool; UsageError when its shape is another."""
        array = np.asarray(mask)
        if array.shape != (len(self),):
            raise UsageError(f"a selection mask must have shape ({len(self)},), not {array.shape}.")
        return array.astype(bool)

    def step_time(self, mask: AnyMask) -> float:
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

    def _earliest(self, mask: Mask) -> int:
        """Return the index of the tensor of `mask` (N,) bool that is nearest the input."""
        return int(self.order[self._place[mask].max()])

    def _reading_ms_of(self, mask: Mask) -> float:
        """Return `reading_ms` of the earliest tensor of `mask` (N,) bool; 0 where it is empty."""
        return float(self.reading_ms[self._earliest(mask)]) if mask.any() else 0.0

    def is_earlier(self, mask: Mask) -> Mask:
        """Return (N,) bool: the tensors nearer the input than all of `mask` (N,) bool."""
        return np.asarray(self._place > self._place[mask].max(initial=-1))

    def added_reading_ms(self, mask: Mask) -> Numbers:
        """Return (N,) ms by which reading costs a step more where a tensor joins `mask` (N,) bool."""
        return np.where(self.is_earlier(mask), self.reading_ms - self._reading_ms_of(mask), 0.0)

    @cached_property
    def saved_ms(self) -> Numbers:
        """Return (N,) ms of forward work that a cached step saves whose earliest trained tensor is this."""
        assert self.cache is not None
        once = self.cache.once
        # With tensor d as the earliest that trains, a group is frozen unless its member nearest the output is
        # d or nearer the output: what is left of the sum behind d.
        passed = once.amount_at_first_member(self.order)[self.order].cumsum()
        shared = once.amount[once.has_members()].sum()
        saved = np.empty(len(self))
        saved[self.order] = (shared - passed) * (1 - self.frozen_saving)
        return saved + once.always

    def cache_write_time(self, mask: AnyMask) -> float:
        """Predict the ms to compute and cache a minibatch's activations under `mask`; needs `cache`."""
        assert self.cache is not None
        earliest = self._earliest(self.as_mask(mask))
        return float(self.saved_ms[earliest] + self.cache.cache_write_ms[earliest])

    def step_flops(self, mask: AnyMask) -> Optional[float]:
        """Predict the floating point operations of a step under `mask` (N,) bool; None without a count."""
        if self.flops is None:
            return None
        return self.flops.always + self.flops.active_amount(self.as_mask(mask))

    def time_ratio(self, full: int, fewer: int, examples: int) -> float:
        """Return a full step's time on `full` examples over that on `fewer`; this profile has `examples`.

        Times grow by `example_ms` of the metadata for each example. Where that was not measured, all but the
        updates is proportional to the examples, which is more than it takes.
        """
        variable_ms = (self.full_ms - float(self.t_update.sum())) / examples
        example_ms = self.metadata.get("example_ms", variable_ms)
        full_ms, fewer_ms = (self.full_ms + (count - examples) * example_ms for count in (full, fewer))
        return float(full_ms / fewer_ms)

    def for_batch(self, measured: int, batch: int) -> "Profile":
        """Return the profile of minibatches of `batch` examples, this one being of `measured`."""
        factor, times = batch / measured, self.time_ratio(batch, measured, measured)
        steps = ("predicted_ms", "measured_ms")
        return dataclasses.replace(
            self,
            **{key: getattr(self, key).scaled(times) for key in _GROUPS},
            t_update=self.t_update * times,
            flops=self.flops and self.flops.scaled(factor),
            cache=self.cache and self.cache.scaled(times, factor),
            memory=self.memory and self.memory.for_batch(batch),
            metadata={**self.metadata, "measured_examples": measured},
            validation=[{**row, **{key: row[key] * times for key in steps}} for row in self.validation],
        )

    def to_json(self) -> Json:
        """Return the profile as plain JSON values. Derived times are for people; `from_json` ignores them."""
        times = {key: getattr(self, key) for key in ("t_forward", "t_dw", "t_dy", "t_update")}
        return {
            "format": FORMAT,
            "version": VERSION,
            "metadata": self.metadata,
            "full_ms": self.full_ms,
            "forward_ms": self.forward_ms,
            "frozen_saving": self.frozen_saving,
            "overlap": self.overlap,
            "rho_min": self.rho_min,
            "tensors": [
                {
                    "name": name,
                    "shape": list(shape),
                    **{key: float(values[i]) for key, values in times.items()},
                    "connected": bool(self.connected[i]),
                    "estimated": bool(self.estimated[i]),
                }
                for i, (name, shape) in enumerate(zip(self.names, self.shapes))
            ],
            "groups": {key: getattr(self, key).to_json() for key in _GROUPS},
            "flops": None if self.flops is None else self.flops.to_json("flops"),
            "cache": self.cache and self.cache.to_json(),
            "memory": self.memory and self.memory.to_json(),
            "validation": self.validation,
        }

    @classmethod
    def from_json(cls, value: Any) -> "Profile":
        """Read the profile that `to_json` wrote; UsageError where `value` is none."""
        _require_valid(value)
        tensors = value["tensors"]
        n = len(tensors)
        flops, cache, memory = (value.get(key) for key in ("flops", "cache", "memory"))
        return cls(
            names=tuple(t["name"] for t in tensors),
            shapes=tuple(tuple(t["shape"]) for t in tensors),
            **{key: CostGroups.from_json(n, value["groups"][key]) for key in _GROUPS},
            t_update=np.array([t["t_update"] for t in tensors], np.float64),
            connected=np.array([t["connected"] for t in tensors], bool),
            estimated=np.array([t["estimated"] for t in tensors], bool),
            frozen_saving=float(value["frozen_saving"]),
            overlap=float(value.get("overlap", 0.0)),
            flops=CostGroups.from_json(n, flops, "flops") if flops else None,
            cache=CacheCosts.from_json(n, cache) if cache else None,
            memory=StepMemory.from_json(n, memory) if memory else None,
            metadata=value["metadata"],
            validation=value["validation"],
        )

    def save(self, path: Union[str, Path]) -> None:
        """Write the profile as JSON, completely or not at all."""
        write_json(path, self.to_json())

    @classmethod
    def load(cls, path: Union[str, Path]) -> "Profile":
        """Read a profile; UsageError, naming the file, where it is missing, no profile, or damaged."""
        again = "Make a new one: et-profile --model MODEL --profile " + shlex.quote(str(path))
        try:
            text = Path(path).read_text(encoding="utf-8")
            return cls.from_json(loads(text))
        except OSError as error:
            problem = f"{error.strerror}."
        except UsageError as error:
            problem = str(error)
        except (ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError) as error:
            problem = f"damaged, or no profile ({type(error).__name__}: {error})."
        raise UsageError(f"cannot read the profile {path}: {problem} {again}")


class _CachedProfile(Profile):
    """A profile that has `cache`, for cached steps, which begin by reading what was cached before."""

    @cached_property
    def with_cache(self) -> Profile:
        return self

    @property
    def _costs(self) -> CacheCosts:
        assert self.cache is not None
        return self.cache

    @cached_property
    def _unfreeze_cost(self) -> CostGroups:
        once = self._costs.once.rows(self._costs.once.has_members())
        return super()._unfreeze_cost.joined(once.scaled(1 - self.frozen_saving))

    @cached_property
    def forward_ms(self) -> float:
        """Return the ms of every step without the work that was done before."""
        return super().forward_ms - self._costs.once.always

    @cached_property
    def reading_ms(self) -> Numbers:
        """Return (N,) ms that reading the cache costs a step whose earliest tensor is this one.

        No more than it saves: work that does not pay is done in every step.
        """
        # The rest of a step, behind the cut, runs with cold caches: longer by the share `slower`.
        slower_ms = self._costs.slower * np.maximum(0.0, self._alone_unread_ms)
        return np.minimum(self._costs.cache_read_ms + slower_ms, self.saved_ms)

    def step_flops(self, mask: AnyMask) -> Optional[float]:
        """Predict the floating point operations of a cached step under `mask`; None without a count."""
        flops, once = super().step_flops(mask), self._costs.once_flops
        return flops and flops - float(once.amount.sum()) + once.active_amount(self.as_mask(mask))


def _require_valid(value: Any) -> None:
    import jsonschema

    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise UsageError("this JSON is not an ElasticTrainer profile.")
    if value.get("version") != VERSION:
        raise UsageError(
            f"the profile has version {value.get('version')}, this program reads version {VERSION}."
        )
    error = jsonschema.exceptions.best_match(_validator().iter_errors(value))
    if error is not None:
        place = "/".join(str(step) for step in error.absolute_path)
        raise UsageError(f"{place + ': ' if place else ''}{shortened(error.message, 200)}.")


@lru_cache(maxsize=1)
def _validator() -> Any:
    import jsonschema

    schema = resources.files("elastictrainer").joinpath("assets/profile.schema.json")
    return jsonschema.Draft202012Validator(json.loads(schema.read_text(encoding="utf-8")))
