"""The memory that a run may take, divided among its steps, its minibatches and its cache."""

import dataclasses
import tempfile
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, Optional

import numpy as np
import tensorflow as tf

from elastictrainer.cache.settings import CacheSettings
from elastictrainer.errors import UsageError
from elastictrainer.profiler.cost_groups import CostGroups
from elastictrainer.profiler.profile import Profile
from elastictrainer.profiler.step_memory import StepMemory
from elastictrainer.runs import resident
from elastictrainer.runs.log import LOG
from elastictrainer.selection.schemes import Scheme
from elastictrainer.steps import optimizers
from elastictrainer.training.memory_needs import (
    MemoryRequest,
    Needs,
    around_steps,
    copied_bytes,
    must_undo,
    scoring_bytes,
    usable,
)

_OF_GRAPH = 0.5  # of what stays after the first steps is a graph: 30 to 40 of 82 MB for MobileNetV2
_CACHED = 0.25  # of what the cheapest step leaves, for cached activations in memory
_AUTO = 0.75  # of what is free


class MemoryLimit:
    """Divides the memory that a run may take.

    Attributes:
        profile: with the memory of steps in this process.
        cache_bytes: for cached activations in memory.
        step_bytes: bytes that the process may have resident in steps that select.
        cache: settings of the cache, which goes into a file beyond its share of the memory.
        examples: of a minibatch that full steps are timed and tensors are scored on; 0: not one fits.
        scale: time of a full step over that of one on `examples` examples.
    """

    def __init__(self, limit: float, profile: Profile, model: Any, optimizer: Any, cache: CacheSettings):
        """
        Args:
            limit: bytes.
            profile: the model's profile.
            model, optimizer: of the run, built.
            cache: settings of the cache.

        Raises:
            UsageError: the profile does not say what a step takes.
        """
        resident.release_large_blocks()
        resident.release_memory()
        if profile.memory is None:
            raise UsageError(
                "memory: the profile does not say what a step takes. Make a new one with et-profile, on a "
                "device that trains on its processor."
            )
        memory = _in_this_process(profile.memory)
        slots = CostGroups.singletons(optimizers.slot_bytes(optimizer, model.trainable_variables))
        memory = dataclasses.replace(memory, slots=slots)  # an older profile does not have them
        self.profile = dataclasses.replace(profile, memory=memory)
        self._limit = limit
        connected, variables = profile.connected, model.trainable_variables
        self._must_undo = must_undo(variables)
        copied = copied_bytes(variables, optimizer)
        self._needs = Needs.of(memory, connected, copied)
        counts, most = range(memory.batch, 0, -1), usable(limit)
        fitting = (n for n in counts if scoring_bytes(memory, connected, n, copied) <= most)
        self.examples = next(fitting, 0)
        self.scale = profile.time_ratio(memory.batch, self.examples, memory.batch) if self.examples else 1.0
        self.cache_bytes = int(_CACHED * max(0.0, most - self._needs.layers))
        self.step_bytes = most - around_steps(memory) - self.cache_bytes
        self.cache = dataclasses.replace(cache, memory=min(cache.kept_bytes, self.cache_bytes))

    def scheme(self, wanted: Scheme, solves: bool) -> Scheme:
        """Return the scheme that there is room for, see `Needs.scheme`."""
        return self._needs.scheme(MemoryRequest(self._limit, wanted, solves))

    @property
    def times_full_steps(self) -> bool:
        """Return whether there is room for full steps in addition to the run's own."""
        return self.examples > 0 and not self._must_undo

    @property
    def weights_folder(self) -> Optional[Path]:
        """Return where to keep the weights while tensors are scored; None: in memory."""
        return Path(self.cache.folder or tempfile.gettempdir()) if self._must_undo else None

    def shortened(self, minibatches: Callable[[int], Iterable[Any]]) -> Callable[[int], Iterator[Any]]:
        """Shorten each of `minibatches` to so few examples that a full step fits."""

        def first(part: Any) -> Any:
            return None if part is None else part[: self.examples]

        return lambda number: (tf.nest.map_structure(first, one) for one in minibatches(number))

    def lines(self) -> Iterator[str]:
        """Yield lines on how the memory is divided."""
        memory = self.profile.memory
        assert memory is not None
        yield (
            f"memory: at most {self._limit / 1e9:.2f} GB, of which {memory.loaded / 1e9:.2f} GB are taken; a "
            f"full step takes {memory.step_bytes(self.profile.connected) / 1e9:.2f} GB, cached activations "
            f"have {self.cache_bytes / 1e9:.2f} GB"
        )
        if 0 < self.examples < memory.batch:
            yield (
                f"memory: full steps are timed and scored on {self.examples} of {memory.batch} images, and "
                "their times scaled"
            )


def _in_this_process(memory: StepMemory) -> StepMemory:
    """Return a profile's memory as it is in this process, as it is now.

    What TensorFlow sets up once stays after a profile's steps as their graph does. After a profile that this
    process made it is resident already, and is not to count again for each graph.
    """
    loaded, stays = float(resident.resident_bytes()), float(memory.graph.amount.sum())
    there = float(np.clip(loaded - memory.loaded, 0.0, (1 - _OF_GRAPH) * stays))
    graph = memory.graph.scaled(1 - there / stays) if stays else memory.graph
    return dataclasses.replace(memory, graph=graph, loaded=loaded)


def automatic_limit() -> float:
    """Return the bytes that a run may take: three quarters of what is free, this process included."""
    return _AUTO * (resident.available_bytes() + resident.resident_bytes())


def note_shortage(profile: Optional[Profile]) -> None:
    """Log a note if the full steps of a run without a limit do not fit into what is free."""
    if profile is None or profile.memory is None:
        return
    free = resident.available_bytes() + resident.resident_bytes()
    needed = resident.resident_bytes() + profile.memory.step_bytes(profile.connected)
    if needed > free:
        LOG.info(
            f"note: full steps take {needed / 1e9:.2f} GB, and {free / 1e9:.2f} GB are free. "
            f"--memory {int(_AUTO * free / 1e7) * 1e7 / 1e9:g}GB keeps the run within that."
        )
