"""A limit of memory: what fits into it, and how it is divided among steps, minibatches and the cache."""

import dataclasses
import tempfile
from pathlib import Path
from typing import Iterable, Iterator, Optional, Sequence

import numpy as np
from numpy.typing import NDArray

from elastictrainer.cache.settings import CacheSettings
from elastictrainer.errors import UsageError
from elastictrainer.profiler.memory import StepMemory
from elastictrainer.profiler.profile import Profile
from elastictrainer.runs.log import LOG
from elastictrainer.selection import schemes
from elastictrainer.selection.schemes import Scheme

_USABLE = 0.97  # of the limit: runs on 3,000 images took up to 2.4 % more than was predicted
_READ_AHEAD = 50e6  # bytes of minibatches
_GRAPHS = 2  # as large as the full step's, in addition to it while steps are profiled and tensors scored
_CACHED = 0.25  # of what the cheapest step leaves, for cached activations in memory
_LARGE = 100e6  # bytes of weights: copies of smaller ones take less than a graph that undoes its updates
_ROUNDED = 50e6  # a number to ask for is rounded up to this
_DIFFERS = 20e6  # bytes, between two processes that do the same


@dataclasses.dataclass(frozen=True)
class MemoryLimit:
    """A limit of a process's resident memory, and what the parts of its run take of it.

    Attributes:
        limit: bytes.
        step: memory of a step in this process as it is now, for the run's minibatches.
        connected: (N,) bool: the tensors that can train.
        weights: bytes of the N tensors.
        scale: time of a full step over that of one on `examples` examples.
        folder: of files in place of memory; None: the system's for temporary files.
    """

    limit: float
    step: StepMemory
    connected: NDArray[np.bool_]
    weights: float
    scale: float = 1.0
    folder: Optional[Path] = None

    @property
    def usable(self) -> float:
        """Return the bytes that a run plans with."""
        return _USABLE * self.limit

    @property
    def must_undo(self) -> bool:
        """Return whether full steps that only measure are to undo their updates themselves, tensor by tensor.

        That takes a graph of their own, but no copies of weights and slots.
        """
        return self.weights > _LARGE

    @property
    def head_bytes(self) -> float:
        """Return what a process takes that solves the head on the features of the images."""
        return self.step.loaded + self.step.forward_bytes + _READ_AHEAD

    @property
    def layers_bytes(self) -> float:
        """Return what a process takes that trains the tensor that takes least."""
        return self.step.loaded + float(self.step.alone[self.connected].min()) + self._around_steps

    @property
    def _around_steps(self) -> float:
        """Return what a run takes in addition to its steps.

        Of a step with a cache the whole graph is there in addition to its two parts.
        """
        return _READ_AHEAD + self.step.graph_bytes

    def measuring_bytes(self, examples: int) -> float:
        """Return what a process takes that profiles the full step, or scores tensors, on so many examples.

        Weights and slots are there twice, or undone; and the gradients, which differ from the updates.
        """
        step = self.step.undone() if self.must_undo else self.step
        copies = 0.0 if self.must_undo else 2 * self.weights + float(self.step.slots.amount.sum())
        total = step.for_batch(examples).total(self.connected)
        return total + _GRAPHS * self.step.graph_bytes + copies + _READ_AHEAD

    @property
    def examples(self) -> int:
        """Return on how many examples full steps are profiled, timed and scored; 0: not one fits."""
        counts = range(self.step.batch, 0, -1)
        return next((n for n in counts if self.measuring_bytes(n) <= self.usable), 0)

    @property
    def times_full_steps(self) -> bool:
        """Return whether there is room for full steps in addition to the run's own."""
        return self.examples > 0 and not self.must_undo

    @property
    def cache_bytes(self) -> int:
        """Return the bytes for cached activations in memory."""
        return int(_CACHED * max(0.0, self.usable - self.layers_bytes))

    @property
    def step_bytes(self) -> float:
        """Return the bytes that the process may have resident in steps that select."""
        return self.usable - self._around_steps - self.cache_bytes

    @property
    def weights_folder(self) -> Optional[Path]:
        """Return where to keep the weights while tensors are scored; None: in memory."""
        return self.folder or Path(tempfile.gettempdir()) if self.must_undo else None

    def cache(self, settings: CacheSettings) -> CacheSettings:
        """Return the settings of a cache that goes into a file beyond its share of the memory."""
        return dataclasses.replace(settings, memory=min(settings.kept_bytes, self.cache_bytes))

    def last_layers_bytes(self, tensors: int) -> float:
        """Return what a process takes that trains so many of the last tensors, and never a full step."""
        mask = schemes.LastLayers(tensors).of(len(self.connected)) & self.connected
        graph = self.step.graph.active_amount(mask)  # of the whole step; its cached parts have their own
        return self.step.total(mask) + graph + _READ_AHEAD + self.cache_bytes

    def last_layers(self) -> Optional[Scheme]:
        """Return the scheme of as many of the last layers as there is room for, a quarter of all tensors at
        most, the last layer's kernel and bias at least; None: not these. It needs no profile.
        """
        most = int(schemes.LastLayers().of(len(self.connected)).sum())
        fitting = (n for n in range(most, 1, -1) if self.last_layers_bytes(n) <= self.usable)
        tensors = next(fitting, None)
        if tensors is None:
            return None
        LOG.info(f"memory: the last {tensors} of {len(self.connected)} tensors train")
        return schemes.LastLayers(tensors)

    def scheme(self, wanted: Scheme, solves: bool, least: Optional[float] = None) -> Scheme:
        """Return the scheme that there is room for: the one `wanted`, or one that prepares less.

        Without scores the late layers train; then the head alone.

        Args:
            wanted: asked for; it selects.
            solves: whether the head is to be solved, so that it can be trained alone.
            least: bytes with which other layers than the head train; None: what the cheapest tensor takes.

        Raises:
            UsageError: none fits, with the least size that does.
        """
        measuring = self.measuring_bytes(1)
        layers = self.layers_bytes if least is None else least
        asked = max(layers, measuring) if wanted.needs_scores else layers
        if asked <= self.usable:
            return wanted
        if layers <= self.usable:
            LOG.info(
                "memory: there is no room to score tensors: the late layers train. "
                f"With {size_to_ask_for(asked)} or more, or a smaller --batch-size, tensors are selected by "
                "their scores"
            )
            return schemes.create("freeze-below")
        if solves and self.head_bytes <= self.usable:
            LOG.info(
                "memory: there is no room to train layers: the head alone is solved on the features of the "
                f"images. With {size_to_ask_for(layers)} or more, or a smaller --batch-size, other layers "
                "train as well"
            )
            return schemes.create("head-alone")
        how, least = ("the head alone", self.head_bytes) if solves else ("the last layers alone", layers)
        raise UsageError(
            f"memory: {self.limit / 1e9:.2f} GB are too little for this model. The least, with {how} in "
            f"training, is {size_to_ask_for(least)}; a smaller --batch-size needs less."
        )

    def lines(self) -> Iterator[str]:
        """Yield lines on how the memory is divided."""
        yield (
            f"memory: at most {self.limit / 1e9:.2f} GB, of which {self.step.loaded / 1e9:.2f} GB are taken; "
            f"a full step takes {self.step.step_bytes(self.connected) / 1e9:.2f} GB, cached activations have "
            f"{self.cache_bytes / 1e9:.2f} GB"
        )
        if 0 < self.examples < self.step.batch:
            yield (
                f"memory: full steps are timed and scored on {self.examples} of {self.step.batch} images, "
                "and their times scaled"
            )


def limited(limit: float, profile: Profile, resident: float, folder: Optional[Path] = None) -> MemoryLimit:
    """Return the limit of a run that trains by `profile`, in a process that has so many bytes resident now.

    Args:
        limit: bytes of the process.
        profile: the model's.
        resident: bytes.
        folder: of files in place of memory; None: the system's for temporary files.

    Raises:
        UsageError: the profile does not say what a step takes.
    """
    if profile.memory is None:
        raise UsageError(
            "memory: the profile does not say what a step takes. Make a new one with et-profile, on a "
            "device that trains on its processor."
        )
    step = dataclasses.replace(profile.memory, loaded=resident)
    made = MemoryLimit(limit, step, profile.connected, weight_bytes(profile.shapes), folder=folder)
    scale = profile.time_ratio(step.batch, made.examples, step.batch) if made.examples else 1.0
    return dataclasses.replace(made, scale=scale)


def weight_bytes(shapes: Iterable[Sequence[int]]) -> float:
    """Return the bytes of weights of these shapes."""
    return float(sum(4 * np.prod(shape) for shape in shapes))


def size_to_ask_for(size: float) -> str:
    """Format the limit to ask for where a run needs `size`, rounded up: "1.35GB"."""
    return f"{np.ceil((size + _DIFFERS) / _USABLE / _ROUNDED) * _ROUNDED / 1e9:g}GB"
