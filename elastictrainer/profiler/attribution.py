"""Graph to tensors: which selections make each op of a training step run, and the ops in functions it calls.

TensorFlow inlines most functions; their events have names below that of the call. Where it does not (the
loops of Keras' GRU and LSTM), an event has its name in the function's body, and two layers of a kind have the
same names.
"""

import functools
import operator
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from elastictrainer.steps.graph_library import CALLS, LOOPS, Functions, functions_of

FORWARD = "forward"
BACKWARD = "backward"
UPDATE = "update"
NEVER = "never"

# TensorFlow's, or made by hand: nothing here imports it. A gradient is a tensor, an IndexedSlices, or None.
Graph = Any
Op = Any
Tensor = Any
Gradient = Any

Labels = Dict[str, int]
Bodies = Dict[str, Dict[str, str]]


@dataclass(frozen=True)
class Charge:
    """The op or tensors that an op's time is charged to."""

    # FORWARD (runs in every step), BACKWARD (runs when a member's gradient is wanted), UPDATE (when a member
    # is updated) or NEVER (in the graph, but nothing needs it: a gradient of the input, for example).
    kind: str
    # The tensors S(op) any of which makes it run, of FORWARD R(op) that it depends on; tensor i is bit i.
    members: int


def attribute(
    operations: Sequence[Op], loss: Tensor, gradients: Sequence[Gradient], handles: Sequence[Optional[Tensor]]
) -> Tuple[List[str], List[Charge]]:
    """Charge every op of a traced training step by plain reachability in its graph, without layer names.

    The `operations` are in order, producers before consumers. There is for each trainable tensor a gradient,
    and the graph's tensor of its resource handle, or None where the graph has none. Returns the op names and
    their charges, in the same order.
    """
    forward = {name for name, needed in _needed(operations, {loss.op.name: 1}).items() if needed}
    # By tensor: one op may yield the gradients of several variables.
    gradient_of: Dict[Tuple[str, int], int] = defaultdict(int)
    wanted: Dict[str, int] = defaultdict(int)
    for i, gradient in enumerate(gradients):
        for tensor in gradient_tensors(gradient):
            gradient_of[key_of(tensor)] |= 1 << i
            wanted[tensor.op.name] |= 1 << i
    wanted_by = _needed(operations, wanted)  # S(op): the tensors whose gradient depends on it
    updated = _updated(operations, handles, gradient_of, forward)
    of_updates = {op: bits for op, bits in updated.items() if op not in forward and not wanted_by[op]}
    updates = _needed(operations, of_updates)
    alive = _needed(operations, {op.name: 1 for op in operations if _has_side_effect(op)})
    charges = []
    for op, depends in zip(operations, depends_on(operations, handles)):  # R(op)
        if op.name in forward:
            charges.append(Charge(FORWARD, depends))
        elif wanted_by[op.name]:
            charges.append(Charge(BACKWARD, wanted_by[op.name]))
        elif updates[op.name]:
            charges.append(Charge(UPDATE, updates[op.name]))
        else:  # metrics and counters run in every step
            charges.append(Charge(FORWARD if alive[op.name] else NEVER, 0))
    return [op.name for op in operations], charges


def _needed(operations: Sequence[Op], by: Mapping[str, int]) -> Dict[str, int]:
    """Return, for each op by name, what needs it, as bits: what `by` says of it and what follows it."""
    found = {op.name: by.get(op.name, 0) for op in operations}
    for op in reversed(operations):
        if found[op.name]:
            for tensor in op.inputs:
                if tensor.op.name in found:
                    found[tensor.op.name] |= found[op.name]
    return found


def _updated(
    operations: Sequence[Op],
    handles: Sequence[Optional[Tensor]],
    gradient_of: Mapping[Tuple[str, int], int],
    forward: Set[str],
) -> Dict[str, int]:
    """Return, for each op with a side effect, the tensors that it updates, as bits.

    These are the tensors whose handle it has; of an op without one, those whose gradient it follows.
    """
    handle_bit = {handle.op.name: 1 << i for i, handle in enumerate(handles) if handle is not None}
    follows: Dict[str, int] = {}  # the gradients that an op is computed from, but not by way of the loss
    updated = {}
    for op in operations:
        follows[op.name] = written = 0
        for tensor in op.inputs:
            if key_of(tensor) in gradient_of:
                follows[op.name] |= gradient_of[key_of(tensor)]
            elif tensor.op.name not in forward:
                follows[op.name] |= follows.get(tensor.op.name, 0)
            written |= handle_bit.get(tensor.op.name, 0)
        if _has_side_effect(op):
            updated[op.name] = written or follows[op.name]
    return updated


def depends_on(operations: Sequence[Op], handles: Sequence[Optional[Tensor]]) -> List[int]:
    """Return the tensors R(op) that each op depends on, as bits: tensor i is bit i."""
    found: Dict[str, int] = dict.fromkeys((op.name for op in operations), 0)
    for i, handle in enumerate(handles):
        if handle is not None and handle.op.name in found:
            found[handle.op.name] |= 1 << i
    for op in operations:
        for tensor in op.inputs:
            found[op.name] |= found.get(tensor.op.name, 0)
    return list(found.values())


def gradient_tensors(gradient: Gradient) -> List[Tensor]:
    """Return the tensors a gradient is made of: one, the two of an IndexedSlices, or none."""
    if gradient is None:
        return []
    if hasattr(gradient, "indices"):
        return [gradient.values, gradient.indices]
    return [gradient]


def key_of(tensor: Tensor) -> Tuple[str, int]:
    """Return the op's name and the number of its output, which tell a tensor from all others."""
    return tensor.op.name, getattr(tensor, "value_index", 0)


def _has_side_effect(op: Op) -> bool:
    """Return whether TensorFlow runs the op for its effect, not for its result."""
    return bool(op.op_def.is_stateful) and op.type not in ("ReadVariableOp", "Placeholder")


def labelled(functions: Functions, name: str, outputs: Sequence[int]) -> Tuple[List[int], Labels]:
    """Label a function's inputs and ops with the tensors whose gradients need them, by those of its outputs.

    Labels are sets as bits. Returns one for each input; and for each op by name, those in called functions
    under their bare names, those in loops as `LOOP/body/OP` and `LOOP/cond/OP`; 0 for what no output needs.
    """
    function = functions[name]
    nodes = {node.name: node for node in function.node_def}
    # By op or input, and number of its output: those of calls and loops may be wanted for different tensors.
    wanted: Dict[str, Dict[int, int]] = defaultdict(lambda: defaultdict(int))
    pending = [
        (function.ret[given.name], label) for given, label in zip(function.signature.output_arg, outputs)
    ]
    # From the outputs to the inputs. A label only ever grows, so that the search ends.
    while pending:
        tensor, label = pending.pop()
        base, _, place = tensor.partition(":")
        node = nodes.get(base)
        runs = node is not None and _runs_function(functions, node)
        number = int(place.rpartition(":")[2] or 0) if runs else 0
        if tensor.startswith("^") or not label & ~wanted[base][number]:  # an order, not a value; or known
            continue
        wanted[base][number] |= label
        if node is not None:
            needed = _through(functions, node, wanted[base])[0] if runs else [label] * len(node.input)
            pending += zip(node.input, needed)
    labels = {base: _any(wanted[base].values()) for base in nodes}
    for base, node in nodes.items():
        if _runs_function(functions, node):
            for inner, label in _through(functions, node, wanted[base])[1].items():
                labels[inner] = labels.get(inner, 0) | label
    return [wanted[given.name][0] for given in function.signature.input_arg], labels


def _any(labels: Iterable[int]) -> int:
    return functools.reduce(operator.or_, labels, 0)


def _runs_function(functions: Functions, node: Any) -> bool:
    attribute = "f" if node.op in CALLS else "body"
    return node.op in (*CALLS, *LOOPS) and node.attr[attribute].func.name in functions


def _through(functions: Functions, node: Any, of_output: Dict[int, int]) -> Tuple[List[int], Labels]:
    """Label, as `labelled` does, the function that a node calls, or runs in a loop."""
    if node.op in CALLS:
        outputs = [of_output.get(k, 0) for k in range(len(node.attr["Tout"].list.type))]
        return labelled(functions, node.attr["f"].func.name, outputs)
    wanted = [of_output.get(k, 0) for k in range(len(node.attr["T"].list.type))]
    while True:  # an iteration's results are wanted for whatever the next iteration is wanted for
        inputs, body = labelled(functions, node.attr["body"].func.name, wanted)
        read, condition = labelled(functions, node.attr["cond"].func.name, [_any(wanted)])
        merged = [a | b | c for a, b, c in zip(wanted, inputs, read)]
        if merged == wanted:
            break
        wanted = merged
    parts = {"body": body, "cond": condition}.items()
    return wanted, {
        f"{node.name}/{part}/{name}": label for part, names in parts for name, label in names.items()
    }


def bodies_of(
    graph: Graph, charges: Sequence[Charge], gradients: Sequence[Gradient]
) -> Tuple[Bodies, Dict[str, Charge]]:
    """Collect the ops inside the functions that the graph's ops call; arguments as from and for `attribute`.

    Returns for each calling op, in graph order, what each op inside is to be charged to: the call; or a part
    of the call, `CALL#MEMBERS`, where not all of its outputs need the op. And the parts' charges.
    """
    bodies: Bodies = {}
    parts: Dict[str, Charge] = {}
    for op, charge, _, labels in _labelled_calls(graph, charges, gradients):
        bodies[op.name] = {}
        for name, members in labels.items():
            is_part = charge.kind == BACKWARD and members and members != charge.members
            bodies[op.name][name] = f"{op.name}#{members:x}" if is_part else op.name
            if is_part:
                parts[bodies[op.name][name]] = Charge(BACKWARD, members)
    return bodies, parts


def read_by_calls(
    graph: Graph, charges: Sequence[Charge], gradients: Sequence[Gradient]
) -> Dict[str, List[int]]:
    """Return for each backward call and each of its inputs the tensors whose gradients need it, as bits."""
    return {
        op.name: inputs
        for op, charge, inputs, _ in _labelled_calls(graph, charges, gradients)
        if charge.kind == BACKWARD
    }


def _labelled_calls(
    graph: Graph, charges: Sequence[Charge], gradients: Sequence[Gradient]
) -> Iterator[Tuple[Op, Charge, List[int], Labels]]:
    """Return the ops that call functions, their charges, and what inputs and inner ops are wanted for."""
    operations = graph.get_operations()
    functions = functions_of(graph.as_graph_def().library)
    wanted: Dict[Tuple[str, int], int] = defaultdict(int)
    for op, charge in zip(operations, charges):
        for tensor in op.inputs if charge.kind == BACKWARD else ():
            wanted[key_of(tensor)] |= charge.members
    for i, gradient in enumerate(gradients):
        for tensor in gradient_tensors(gradient):
            wanted[key_of(tensor)] |= 1 << i
    for op, charge in zip(operations, charges):
        name = op.get_attr("f").name if op.type in CALLS else ""
        if name in functions:
            yield (op, charge, *labelled(functions, name, [wanted[key_of(output)] for output in op.outputs]))
