"""The frozen ops of a traced training step: their result for an example lasts as long as a selection."""

import functools
from dataclasses import dataclass
from typing import AbstractSet, Any, Dict, FrozenSet, List, Sequence, Set

import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from elastictrainer.steps.graph_library import CALLS, LOOPS, GraphLibrary, reached
from elastictrainer.steps.traced_graph import READS, written_by

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
        unstored: frozen ops whose result is not stored: it says nothing about the inputs' values, as shapes
            and dropout's masks do; or it has not one row for each example; or it mixes features with random
            numbers, as dropout does, up to the next weight.
        random_states: ids of the random states' handles that an op takes, by op.
    """

    operations: List[Any]
    frozen: Set[int]
    moving: Set[int]
    random: Set[int]
    unstored: Set[int]
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
    written = {id(handle) for op in operations for handle in written_by(op)} - state_handles
    functions = GraphLibrary(library)
    is_input = {position[tensor.op.name] for tensor in inputs}

    changes = {position[tensor.op.name] for tensor in labels}  # for the same inputs, from step to step
    random: Set[int] = set()
    reads_weight: Set[int] = set()
    states: Dict[int, FrozenSet[int]] = {}
    for k, op in enumerate(operations):
        handles = frozenset(id(tensor) for tensor in op.inputs if tensor.dtype == tf.resource)
        kinds = {op.type} | functions.kinds_in(op.node_def)
        if handles & state_handles:
            states[k] = handles & state_handles
        if handles - state_handles:
            reads_weight.add(k)
        if handles & written or _has_hidden_state(kinds):
            changes.add(k)
        if k in states or _is_random(kinds):
            random.add(k)

    sources = [{position[tensor.op.name] for tensor in op.inputs} for op in operations]
    # A shape depends on no value.
    values = [set() if op.type in _SHAPES else before for op, before in zip(operations, sources)]
    moving = _spread(changes, sources)
    frozen = _spread(is_input, sources) - moving
    by_value = _spread(is_input, values)
    drawn = _spread(random, values)
    weighted = _spread(reads_weight, values)
    # Features times a drawn mask are dropout: stored, every cached step would see the same draw. What follows
    # is like that up to the next weight; results behind that are stored like others.
    weighs = {k for k, before in enumerate(values) if k in reads_weight or before & (weighted - by_value)}
    dropouts = {
        k
        for k, before in enumerate(values)
        if (k in random or before & (drawn - weighted)) and before & weighted & by_value
    }
    unweighed = [set() if k in weighs else before for k, before in enumerate(values)]
    behind_dropout = _spread(dropouts - weighs, unweighed)
    return FrozenOps(operations, frozen, moving, random, frozen & behind_dropout | frozen - by_value, states)


def _spread(starts: Set[int], sources: Sequence[AbstractSet[int]]) -> Set[int]:
    """Return `starts` and all ops that depend on them; `sources`: those before each op, producers first."""
    found = set(starts)
    for k, before in enumerate(sources):
        if not found.isdisjoint(before):
            found.add(k)
    return found


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
