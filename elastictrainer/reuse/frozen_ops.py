"""The frozen ops of a traced training step: their result for an example lasts as long as a selection."""

import functools
from dataclasses import dataclass
from typing import AbstractSet, Any, Dict, FrozenSet, List, Sequence, Set

import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from elastictrainer.steps.graph_library import CALLS, LOOPS, GraphLibrary, reached
from elastictrainer.steps.graph_part import READS, written_by

_SHAPES = ("Shape", "ShapeN", "Size", "Rank")  # their result says nothing about the values
_STATELESS_KINDS = ("Placeholder", "VarHandleOp", "NoOp")
_RUNS_FUNCTIONS = (*CALLS, *LOOPS, "If", "Case")
_RANDOM = ("Random", "Multinomial", "TruncatedNormal", "RngReadAndSkip", "RngSkip")


@dataclass
class FrozenOps:
    """The ops of a step, by what they depend on. Sets hold positions in `operations`.

    Attributes:
        operations: of the step, producers before consumers.
        frozen: ops that depend on the inputs and on nothing that the step changes: their result is the same
            for the same augmented copy of an example. Placeholders of inputs are among them.
        moving: ops that depend on a variable that the step changes, or on the labels.
        random: those that draw random numbers from a state in a variable, or in themselves.
        behind_dropout: frozen ops whose result mixes features with random numbers, up to the next weight.
        valueless: frozen ops whose result is not stored: it says nothing about the inputs' values, as shapes
            and dropout's masks do, or has not one row for each example.
        random_states: ids of the random states' handles that an op takes, by op.
    """

    operations: List[Any]
    frozen: Set[int]
    moving: Set[int]
    random: Set[int]
    behind_dropout: Set[int]
    valueless: Set[int]
    random_states: Dict[int, FrozenSet[int]]

    @functools.cached_property
    def position(self) -> Dict[str, int]:
        """Return each op's place in `operations`, by its name."""
        return {op.name: k for k, op in enumerate(self.operations)}

    def upstream(
        self, ends: Set[int], without: AbstractSet[int] = frozenset(), given: AbstractSet[int] = frozenset()
    ) -> Set[int]:
        """Return the ops that `ends` are computed by, themselves included.

        Args:
            ends: positions.
            without: positions of ops that are left out, with all before them.
            given: ids of tensors that exist already.
        """

        def before(k: int) -> Set[int]:
            wanted = (tensor for tensor in self.operations[k].inputs if id(tensor) not in given)
            return {self.position[tensor.op.name] for tensor in wanted} - without

        return reached(ends, before)

    def downstream(self, starts: Set[int]) -> Set[int]:
        """Return the positions of the ops `starts` and of all that depend on them."""

        def readers(k: int) -> Set[int]:
            names = {reader.name for t in self.operations[k].outputs for reader in t.consumers()}
            # A reader without a position is of another step in the same graph.
            return {self.position[name] for name in names if name in self.position}

        return reached(starts, readers)


def frozen_ops(
    operations: List[Any],
    library: Any,
    inputs: Sequence[Any],
    labels: Sequence[Any],
    random_states: Sequence[Any],
) -> FrozenOps:
    """Sort the ops of a training step by plain reachability.

    What the step writes to, moves: trained tensors, their slots, counters, metrics, and statistics of batch
    normalisation in training. A random state is the exception: an op that draws from it is done once where
    all else that it needs is.

    Args:
        operations: of one training step, in a tf.function's graph; producers before consumers.
        library: of functions that they call, `GraphDef.library`.
        inputs, labels: placeholders.
        random_states: the graph's handles of variables that hold the state of random numbers.
    """
    position = {op.name: k for k, op in enumerate(operations)}
    state_handles = {id(handle) for handle in random_states}
    written = {
        id(tensor) for op in operations for tensor in written_by(op) if id(tensor) not in state_handles
    }
    functions = GraphLibrary(library)
    is_input = {position[tensor.op.name] for tensor in inputs}
    is_label = {position[tensor.op.name] for tensor in labels}

    from_input: Set[int] = set(is_input)
    moving: Set[int] = set(is_label)
    random: Set[int] = set()
    weighted: Set[int] = set()  # depends on a weight
    by_value: Set[int] = set(is_input)  # depends on the inputs' values, not on their shape alone
    is_drawn: Set[int] = set()  # depends on random numbers
    behind: Set[int] = set()
    states: Dict[int, FrozenSet[int]] = {}
    # Producers come before consumers: one pass decides every set for an op from those of its inputs.
    for k, op in enumerate(operations):
        sources = [position[tensor.op.name] for tensor in op.inputs]
        taken = frozenset(id(tensor) for tensor in op.inputs if id(tensor) in state_handles)
        if taken:
            states[k] = taken
        kinds = {op.type} | functions.kinds_in(op.node_def)
        if taken or _is_random(kinds):
            random.add(k)
        if from_input.intersection(sources):
            from_input.add(k)
        if (
            moving.intersection(sources)
            or any(id(tensor) in written for tensor in op.inputs)
            or _has_hidden_state(kinds)
        ):
            moving.add(k)
        if op.type in _SHAPES:  # a shape depends on no value: none of the sets below goes through it
            continue
        if by_value.intersection(sources):
            by_value.add(k)
        if random.intersection(sources) or k in random or is_drawn.intersection(sources):
            is_drawn.add(k)
        reads_weight = any(
            tensor.dtype == tf.resource and id(tensor) not in state_handles for tensor in op.inputs
        )
        if reads_weight or weighted.intersection(sources):
            weighted.add(k)
        # Features times a drawn mask are dropout: stored, every cached step would see the same draw. The set
        # ends at the next weight; results behind that are stored like others.
        uses_weight = reads_weight or any(s in weighted and s not in by_value for s in sources)
        masked = any(s in is_drawn and s not in weighted for s in sources) or k in random
        features = any(s in weighted and s in by_value for s in sources)
        if not uses_weight and (behind.intersection(sources) or masked and features):
            behind.add(k)
    frozen = from_input - moving
    return FrozenOps(operations, frozen, moving, random, behind & frozen, frozen - by_value, states)


def _is_random(kinds: Set[str]) -> bool:
    return any(name in kind and not kind.startswith("Stateless") for kind in kinds for name in _RANDOM)


def _has_hidden_state(kinds: Set[str]) -> bool:
    """Return whether results may depend on a state that is neither in a variable nor of random numbers."""
    return any(
        kind not in (*READS, *_STATELESS_KINDS, *_RUNS_FUNCTIONS)
        and not kind.startswith(("Assign", "Resource", "TensorList"))
        and not _is_random({kind})
        and op_def_registry.get(kind) is not None
        and op_def_registry.get(kind).is_stateful
        for kind in kinds
    )
