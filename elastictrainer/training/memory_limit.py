"""The memory that a run may take, divided among its steps, its minibatches and its cache."""

import dataclasses
import tempfile
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, Optional

import numpy as np
import tensorflow as tf

from elastictrainer.errors import UsageError
from elastictrainer.profiler.cost_groups import CostGroups
from elastictrainer.profiler.memory_profile import variable_bytes
from elastictrainer.profiler.profile import Profile
from elastictrainer.profiler.scaled import time_ratio
from elastictrainer.profiler.step_memory import StepMemory
from elastictrainer.reuse.settings import ReuseSettings
from elastictrainer.runs import resident
from elastictrainer.steps import optimizers

# Bytes that a run takes in addition to its steps, at least: minibatches read ahead, or a small model's file.
_EXTRA = 50e6
_GRAPHS = 2.0  # graphs of a step that a run with a cache holds at once: the whole one, and its two parts
_OF_GRAPH = 0.5  # of what stays after the first steps is a graph: 30 to 40 of 82 MB for MobileNetV2
_CACHED = 0.25  # of what the cheapest step leaves, for cached activations in memory
_AUTO = 0.75  # of what is free
_ROUNDED = 50e6  # a number to ask for is rounded up to this
_DIFFERS = 20e6  # bytes, between two processes that do the same
_USABLE = 0.97  # of the limit: runs on 3,000 images took up to 2.4 % more than was predicted
_LARGE = 100e6  # of weights: copies of smaller ones take less than a graph that undoes its updates


class MemoryLimit:
    """Divides the memory that a run may take.

    Attributes:
        profile: with the memory of steps in this process.
        cache_bytes: for cached activations in memory.
        step_bytes: bytes that the process may have resident in steps that select.
        reuse: settings of the cache, which goes into a file beyond its share of the memory.
        must_undo: whether full steps that only measure undo themselves.
        examples: of a minibatch that full steps are timed and tensors are scored on.
        scale: time of a full step over that of one on `examples` examples.
    """

    def __init__(self, limit: float, profile: Profile, model: Any, optimizer: Any, reuse: ReuseSettings):
        """
        Args:
            limit: bytes.
            profile: the model's profile.
            model, optimizer: of the run, built.
            reuse: settings of the cache.

        Raises:
            UsageError: the profile does not say what a step takes, or the limit is too low for the run; with
                the least.
        """
        resident.keep_nothing()
        resident.give_back()
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
        self.must_undo = must_undo(variables)
        copied = copied_bytes(variables, optimizer)
        file = file_bytes(variables, optimizer)
        least = max(training_bytes(memory, connected, file), scoring_bytes(memory, connected, 1, copied))
        extra = _extra(memory, file)
        if least > usable(limit):
            raise UsageError(
                f"memory: {limit / 1e9:.2f} GB are too little for this model. The least, with the head alone "
                f"in training, is {size_to_ask_for(least)}."
            )
        counts, most = range(memory.batch, 0, -1), usable(limit)
        fitting = (n for n in counts if scoring_bytes(memory, connected, n, copied) <= most)
        self.examples = next(fitting, 1)
        self.scale = time_ratio(profile, memory.batch, self.examples, memory.batch)
        left = usable(limit) - _cheapest(memory, connected) - extra
        self.cache_bytes = int(_CACHED * left)
        self.step_bytes = usable(limit) - extra - self.cache_bytes
        self.reuse = dataclasses.replace(reuse, memory=min(reuse.kept_bytes, self.cache_bytes))

    @property
    def weights_folder(self) -> Optional[Path]:
        """Return where to keep the weights while tensors are scored; None: in memory."""
        return Path(self.reuse.folder or tempfile.gettempdir()) if self.must_undo else None

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
        if self.examples < memory.batch:
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


def must_undo(variables: Any) -> bool:
    """Return whether full steps that only measure are to undo their updates themselves, tensor by tensor.

    That takes a graph of their own, but no copies of weights and slots.
    """
    return variable_bytes(variables) > _LARGE


def copied_bytes(variables: Any, optimizer: Any) -> float:
    """Return the bytes of copies while tensors are scored: of weights, slots and gradients; 0 where steps
    undo themselves, with the weights as they were in a file.
    """
    return (
        0.0
        if must_undo(variables)
        else 2 * variable_bytes(variables) + variable_bytes(optimizers.variables_of(optimizer))
    )


def file_bytes(variables: Any, optimizer: Any) -> float:
    """Return the bytes of the model's file, with the optimizer's slots, which Keras makes in memory."""
    return variable_bytes(variables) + variable_bytes(optimizers.variables_of(optimizer))


def training_bytes(memory: StepMemory, connected: Any, file: float) -> float:
    """Return the resident memory of a run that trains the cheapest tensor; `file`: bytes of the model's."""
    return _cheapest(memory, connected) + _extra(memory, file)


def scoring_bytes(memory: StepMemory, connected: Any, examples: int, copied: float) -> float:
    """Return the resident memory of a process that scores the tensors `connected` (N,) bool.

    It makes a full step on so many examples, a graph of gradients, and copies of so many bytes. Without
    copies the step has a graph in addition to the run's own, and undoes its slots; a graph is there twice
    while it is optimised.
    """
    graph = float(memory.graph.amount.sum())
    if copied:
        return memory.for_batch(examples).total(connected) + graph + copied + _EXTRA
    return memory.undone().for_batch(examples).total(connected) + 3 * graph + _EXTRA


def automatic_limit() -> float:
    """Return the bytes that a run may take: three quarters of what is free, this process included."""
    return _AUTO * (resident.available_bytes() + resident.resident_bytes())


def size_to_ask_for(size: float) -> str:
    """Format the limit to ask for where a run needs `size`, rounded up: "1.35GB"."""
    return f"{np.ceil((size + _DIFFERS) / _USABLE / _ROUNDED) * _ROUNDED / 1e9:g}GB"


def usable(limit: float) -> float:
    """Return the bytes of a limit that a run plans with."""
    return _USABLE * limit


def shortage_note(profile: Optional[Profile]) -> str:
    """Return a note if a run's full steps do not fit into what is free, and what to ask for; else an empty
    string.
    """
    if profile is None or profile.memory is None:
        return ""
    free = resident.available_bytes() + resident.resident_bytes()
    needed = resident.resident_bytes() + profile.memory.step_bytes(profile.connected)
    if needed <= free:
        return ""
    return (
        f"note: full steps take {needed / 1e9:.2f} GB, and {free / 1e9:.2f} GB are free. "
        f"--memory {int(_AUTO * free / 1e7) * 1e7 / 1e9:g}GB keeps the run within that."
    )


def _extra(memory: StepMemory, file: float) -> float:
    """Return the bytes that a run takes in addition to its steps: graphs, and minibatches or the file."""
    return max(_EXTRA, file) + (_GRAPHS - 1) * float(memory.graph.amount.sum())


def _cheapest(memory: StepMemory, connected: Any) -> float:
    """Return resident memory of a process that trains the tensor that takes least."""
    return memory.loaded + float(memory.alone[connected].min())
