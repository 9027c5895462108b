"""The functions that a graph calls: what their ops are needed for, and which traced events are theirs.

TensorFlow inlines most functions; their events have names below that of the call. Where it does not (the
loops of Keras' GRU and LSTM), an event has its name in the function's body, and two layers of a kind have the
same names.
"""

import functools
import operator
import re
from collections import defaultdict
from typing import Any, Dict, Iterator, List, Sequence, Set, Tuple

import numpy as np

from elastictrainer.profiler.attribution import BACKWARD, Charge, gradient_tensors, key_of
from elastictrainer.profiler.xplane import Trace, charge_to
from elastictrainer.steps.graph_library import CALLS, LOOPS, GraphLibrary

_LOWERED = re.compile(r"/(body|cond)/_\d+/")  # TensorFlow takes a loop apart into ops, and numbers its body

Labels = Dict[str, int]
Bodies = Dict[str, Dict[str, str]]


class Functions(GraphLibrary):
    """The functions of a graph, for asking what their outputs depend on.

    Labels are sets as bits: what an output is wanted for.
    """

    def labelled(self, name: str, outputs: List[int]) -> Tuple[List[int], Labels]:
        """Label a function's inputs and ops with the tensors whose gradients need them.

        Args:
            name: of the function.
            outputs: a label for each output.

        Returns:
            A label for each input; and for each op by name, those in called functions under their bare names,
            those in loops as `LOOP/body/OP` and `LOOP/cond/OP`; 0 for what no labelled output needs.
        """
        function = self.functions[name]
        nodes = {node.name: node for node in function.node_def}
        arguments = [argument.name for argument in function.signature.input_arg]
        argument_labels: Labels = dict.fromkeys(arguments, 0)
        labels: Labels = dict.fromkeys(nodes, 0)
        of_output: Dict[str, Dict[int, int]] = defaultdict(lambda: defaultdict(int))  # of calls and loops
        returned = [function.ret[argument.name] for argument in function.signature.output_arg]
        pending = [(tensor, label) for tensor, label in zip(returned, outputs) if label]
        # From the outputs to the inputs. A label only ever grows, so that the search ends.
        while pending:
            tensor, label = pending.pop()
            if tensor.startswith("^"):  # an order, not a value
                continue
            base, *rest = tensor.split(":")
            if base in argument_labels:
                argument_labels[base] |= label
                continue
            node = nodes[base]
            if self._inside(node):  # its outputs may be wanted for different tensors: keep them apart
                index = int(rest[-1]) if rest else 0
                if of_output[base][index] | label == of_output[base][index]:
                    continue
                of_output[base][index] |= label
                labels[base] |= label
                inputs, _ = self._through(node, of_output[base])
                pending += [(source, wanted) for source, wanted in zip(node.input, inputs) if wanted]
            elif labels[base] | label != labels[base]:
                labels[base] |= label
                pending += [(source, labels[base]) for source in node.input]
        for base, node in nodes.items():
            if self._inside(node):
                for inner, label in self._through(node, of_output[base])[1].items():
                    labels[inner] = labels.get(inner, 0) | label
        return [argument_labels[argument] for argument in arguments], labels

    def _inside(self, node: Any) -> bool:
        attribute = "f" if node.op in CALLS else "body"
        return node.op in (*CALLS, *LOOPS) and node.attr[attribute].func.name in self.functions

    def _through(self, node: Any, of_output: Dict[int, int]) -> Tuple[List[int], Labels]:
        """Label, as `labelled` does, the function that a node calls, or runs in a loop."""
        if node.op in CALLS:
            outputs = [of_output.get(k, 0) for k in range(len(node.attr["Tout"].list.type))]
            return self.labelled(node.attr["f"].func.name, outputs)
        wanted = [of_output.get(k, 0) for k in range(len(node.attr["T"].list.type))]
        while True:  # an iteration's results are wanted for whatever the next iteration is wanted for
            inputs, body = self.labelled(node.attr["body"].func.name, wanted)
            any_output = functools.reduce(operator.or_, wanted, 0)
            read, condition = self.labelled(node.attr["cond"].func.name, [any_output])
            merged = [a | b | c for a, b, c in zip(wanted, inputs, read)]
            if merged == wanted:
                break
            wanted = merged
        parts = {"body": body, "cond": condition}.items()
        return wanted, {
            f"{node.name}/{part}/{name}": label for part, names in parts for name, label in names.items()
        }


def compiled_functions(library: Any) -> Set[str]:
    """Return names of the functions of a graph's library that XLA is to compile."""
    return {function.signature.name for function in library.function if function.attr["_XlaMustCompile"].b}


def bodies_of(
    graph: Any, charges: Sequence[Charge], gradients: Sequence[Any]
) -> Tuple[Bodies, Dict[str, Charge]]:
    """Collect the ops inside the functions that the graph's ops call.

    Args:
        graph: of a traced training step.
        charges: of its ops, in order.
        gradients: per trainable tensor a tensor, an IndexedSlices or None.

    Returns:
        For each calling op, in graph order, what each op inside is to be charged to: the call; or a part of
        the call, `CALL#MEMBERS`, where not all of its outputs need the op. And the parts' charges.
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


def read_by_calls(graph: Any, charges: Sequence[Charge], gradients: Sequence[Any]) -> Dict[str, List[int]]:
    """Return, for each backward op that calls a function and each of its inputs, the tensors whose gradients
    need it, as bits.

    `graph`, `charges` and `gradients` are as for `bodies_of`.
    """
    return {
        op.name: inputs
        for op, charge, inputs, _ in _labelled_calls(graph, charges, gradients)
        if charge.kind == BACKWARD
    }


def _labelled_calls(
    graph: Any, charges: Sequence[Charge], gradients: Sequence[Any]
) -> Iterator[Tuple[Any, Charge, List[int], Labels]]:
    """Return the ops that call functions, their charges, and what inputs and inner ops are wanted for."""
    operations = graph.get_operations()
    library = graph.as_graph_def().library
    functions = Functions(library)
    compiled = compiled_functions(library)  # each runs as one op
    wanted: Dict[Tuple[str, int], int] = defaultdict(int)
    for op, charge in zip(operations, charges):
        for tensor in op.inputs if charge.kind == BACKWARD else ():
            wanted[key_of(tensor)] |= charge.members
    for i, gradient in enumerate(gradients):
        for tensor in gradient_tensors(gradient):
            wanted[key_of(tensor)] |= 1 << i
    for op, charge in zip(operations, charges):
        name = op.get_attr("f").name if op.type in CALLS else ""
        if name in functions.functions and name not in compiled:
            yield (op, charge, *functions.labelled(name, [wanted[key_of(output)] for output in op.outputs]))


def charge_calls(trace: Trace, known: Sequence[str], bodies: Bodies) -> Trace:
    """Charge every event inside a called function to the calling op, or to a part of it; returns the trace.

    The events of a step whose name is in several functions are divided evenly, in the order in which the
    functions are called: exact where these run one after the other, with loops of the same length.

    Args:
        trace: the events.
        known: names of the graph's own ops; events charged to these stay.
        bodies: calling op to what the ops in its function are charged to, in graph order.
    """
    places = list(dict.fromkeys(place for body in bodies.values() for place in body.values()))
    op_of = {place: len(trace.ops) + k for k, place in enumerate(places)}
    lines = [line._replace(op=line.op.copy()) for line in trace.lines]
    for k, owners in _owners(trace.ops, known, bodies).items():
        events = sorted(
            (line.start[i], number, i)
            for number, line in enumerate(trace.lines)
            for i in np.flatnonzero(line.op == k)
        )
        for step_start, step_end in trace.steps:
            of_step = [event for event in events if step_start <= event[0] < step_end]
            for rank, (_, number, i) in enumerate(of_step):
                lines[number].op[i] = op_of[owners[rank * len(owners) // len(of_step)]]
    return Trace(trace.steps, (*trace.ops, *places), lines)


def _owners(traced: Sequence[str], known: Sequence[str], bodies: Bodies) -> Dict[int, List[str]]:
    """Return, for each traced op inside functions, what its events may be charged to, in order of calls."""
    lost = np.flatnonzero(charge_to(traced, known) < 0)
    # Events of no op of the graph are inside functions; a loop's body is numbered when it is taken apart.
    names = [_LOWERED.sub(r"/\1/", traced[k]) for k in lost]
    matches: List[List[Tuple[int, str]]] = [[] for _ in lost]  # length of the matching name; its charge
    for body in bodies.values():
        inside = list(body)
        for found, at in zip(matches, charge_to(names, inside)):
            if at >= 0:
                found.append((len(inside[at]), body[inside[at]]))
    owners = {}
    for k, found in zip(lost.tolist(), matches):
        # A body that has the op itself is a better match than one that has the loop around it.
        if found:
            longest, _ = max(found)
            owners[k] = [place for length, place in found if length == longest]
    return owners
