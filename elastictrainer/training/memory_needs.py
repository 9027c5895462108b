"""The memory that the parts of a run need, and what a run within a limit can do by that."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from elastictrainer.errors import UsageError
from elastictrainer.profiler.memory_profile import variable_bytes
from elastictrainer.profiler.step_memory import StepMemory
from elastictrainer.runs.log import LOG
from elastictrainer.selection import schemes
from elastictrainer.selection.schemes import Scheme
from elastictrainer.steps import optimizers

_READ_AHEAD = 50e6  # bytes of minibatches
_ROUNDED = 50e6  # a number to ask for is rounded up to this
_DIFFERS = 20e6  # bytes, between two processes that do the same
_USABLE = 0.97  # of the limit: runs on 3,000 images took up to 2.4 % more than was predicted
_LARGE = 100e6  # of weights: copies of smaller ones take less than a graph that undoes its updates


@dataclass(frozen=True)
class MemoryRequest:
    """The limit of a run, and what it was asked to do within it.

    Attributes:
        limit: bytes of the process.
        scheme: asked for; it selects.
        solves: whether the head is to be solved, so that it can be trained alone.
    """

    limit: float
    scheme: Scheme
    solves: bool


@dataclass(frozen=True)
class Needs:
    """The resident memory of a process, in bytes, by what it does.

    Attributes:
        head: solves the head on the features of the images.
        layers: trains the tensor that takes least.
        scores: scores all tensors, on one example.
    """

    head: float
    layers: float
    scores: float

    @classmethod
    def of(cls, memory: StepMemory, connected: np.ndarray, copied: float) -> "Needs":
        """Return the needs by the memory of steps.

        Args:
            memory: of steps on the minibatches of the run.
            connected: (N,) bool, the tensors that can train.
            copied: bytes that are copied while tensors are scored, see `copied_bytes`.
        """
        return cls(
            head=memory.loaded + memory.always + memory.forward + _READ_AHEAD,
            layers=memory.loaded + float(memory.alone[connected].min()) + around_steps(memory),
            scores=scoring_bytes(memory, connected, 1, copied),
        )

    def scheme(self, request: MemoryRequest) -> Scheme:
        """Return the scheme that there is room for: the one asked for, or one that prepares less.

        Without scores the last layers train; then the head alone. UsageError if none fits, with the least.
        """
        most, scored = usable(request.limit), request.scheme.needs_scores
        wanted = max(self.layers, self.scores) if scored else self.layers
        if wanted <= most:
            return request.scheme
        if self.layers <= most:
            LOG.info(
                "memory: there is no room to score tensors: the last layers train. "
                f"With {size_to_ask_for(wanted)} or more tensors are selected by their scores"
            )
            return schemes.create("freeze-below")
        if request.solves and self.head <= most:
            LOG.info(
                "memory: there is no room to train layers: the head alone is solved on the features of the "
                f"images. With {size_to_ask_for(self.layers)} or more other layers train as well"
            )
            return schemes.create("head-alone")
        how, least = (
            ("the head alone", self.head) if request.solves else ("the last layers alone", self.layers)
        )
        raise UsageError(
            f"memory: {request.limit / 1e9:.2f} GB are too little for this model. The least, with {how} in "
            f"training, is {size_to_ask_for(least)}."
        )


def around_steps(memory: StepMemory) -> float:
    """Return the bytes that a run takes in addition to its steps.

    Of a step with a cache the whole graph is there in addition to its two parts.
    """
    return _READ_AHEAD + float(memory.graph.amount.sum())


def must_undo(variables: Any) -> bool:
    """Return whether full steps that only measure are to undo their updates themselves, tensor by tensor.

    That takes a graph of their own, but no copies of weights and slots.
    """
    return variable_bytes(variables) > _LARGE


def copied_bytes(variables: Any, optimizer: Any) -> float:
    """Return the bytes of copies while tensors are scored: of weights, slots and gradients; 0 where steps
    undo themselves, with the weights as they were in a file.
    """
    if must_undo(variables):
        return 0.0
    return 2 * variable_bytes(variables) + variable_bytes(optimizers.variables_of(optimizer))


def scoring_bytes(memory: StepMemory, connected: np.ndarray, examples: int, copied: float) -> float:
    """Return the resident memory of a process that scores the tensors `connected` (N,) bool.

    It makes a full step on so many examples, a graph of gradients, and copies of so many bytes. Without
    copies the step has a graph in addition to the run's own, and undoes its slots; a graph is there twice
    while it is optimised.
    """
    graph = float(memory.graph.amount.sum())
    if copied:
        return memory.for_batch(examples).total(connected) + graph + copied + _READ_AHEAD
    return memory.undone().for_batch(examples).total(connected) + 3 * graph + _READ_AHEAD


def size_to_ask_for(size: float) -> str:
    """Format the limit to ask for where a run needs `size`, rounded up: "1.35GB"."""
    return f"{np.ceil((size + _DIFFERS) / _USABLE / _ROUNDED) * _ROUNDED / 1e9:g}GB"


def usable(limit: float) -> float:
    """Return the bytes of a limit that a run plans with."""
    return _USABLE * limit
