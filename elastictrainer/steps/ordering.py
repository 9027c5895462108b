"""The order in which a traced step works on its gradients."""

from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence

import numpy as np
import tensorflow as tf

from elastictrainer.steps.graph_library import CALLS, LOOPS, reached
from elastictrainer.steps.graphs import values_of, written_by
from elastictrainer.steps.keras_compat.variables import tf_variables

_LARGE = 100e6  # bytes of gradients: in bfloat16 those of smaller networks are not worth a slower step
_AHEAD = 2  # gradients that may be there while the work on an earlier one goes on


@tf.autograph.experimental.do_not_convert
def last_writes(variables: Sequence[Any]) -> List[Optional[tf.Operation]]:
    """Return for each variable the last op that writes it in the graph being traced; None: none does."""
    graph: Any = tf.compat.v1.get_default_graph()
    inside = {id(outer): inner.name for outer, inner in graph.captures}
    writes = _writes(graph.get_operations())
    names = (inside.get(id(variable.handle)) for variable in tf_variables(variables))
    return [writes[name][-1] if name in writes else None for name in names]


def computed_in_order(tensors: Sequence[tf.Tensor]) -> List[int]:
    """Return the numbers of `tensors` of the graph being traced, in the order in which it computes them."""
    place = {op.name: k for k, op in enumerate(tf.compat.v1.get_default_graph().get_operations())}
    return sorted(range(len(tensors)), key=lambda k: place[tensors[k].op.name])


@tf.autograph.experimental.do_not_convert
def one_by_one(gradients: Sequence[Any], ends: Sequence[Any]) -> None:
    """Have the work on each gradient end before much later ones are computed, in the graph being traced.

    TensorFlow runs what is ready, first come first served. The gradients of all tensors could be there before
    the first is used: they take as much memory as the weights, and so does what an update computes from them.
    Or all of them could wait, and hold their activations, until the last gradient of an input is there.
    Nothing is ordered where the work on one gradient needs later ones, such as the norm of all.

    Convolutions gain time as well: ops that wait for others are not joined by oneDNN, whose joint gradient of
    a kernel and a bias takes longer, in float32, than both by themselves. Measured on MobileNetV2, 16 images,
    one core: 0.62 GB above the process instead of 0.84, in 0.87 of the time. In bfloat16 it is 0.48 GB
    instead of 0.53, in 1.05 of the time on two cores: so small gradients are not ordered there.

    Measured on dense layers with 264 MB of weights and AdamW, two runs with the order and one without: a step
    peaks 226 and 290 MB above the process instead of 616, in 1.5 and 1.6 s of the processor instead of 1.7.

    Per tensor there are its gradient in this graph, or None; and the last op, or tensor, of the work on it,
    None where nothing waits for it.
    """
    there = list(zip(map(values_of, gradients), ends))
    pairs = [(g.op, getattr(end, "op", end)) for g, end in there if g is not None and end is not None]
    size = sum(g.dtype.size * np.prod([d or 1 for d in g.shape]) for g, _ in there if g is not None)
    if not pairs:
        return
    operations = pairs[0][0].graph.get_operations()  # producers before consumers
    in_bfloat16 = any(tensor.dtype == tf.bfloat16 for op in operations for tensor in op.outputs)
    # To compute gradients TensorFlow replaces a call, or a loop, by another one behind its readers.
    if (in_bfloat16 and size < _LARGE) or any(op.type in (*CALLS, *LOOPS) for op in operations):
        return
    place = {op.name: k for k, op in enumerate(operations)}
    pairs.sort(key=lambda pair: place[pair[0].name])
    first, last = place[pairs[0][0].name], place[pairs[-1][0].name]
    if any(t.dtype == tf.resource for op in operations[first:last] for t in op.inputs):
        return  # TensorFlow itself orders reads and writes, when tracing ends
    writes = _writes(operations[last + 1 :])
    if any(_needs_later(end, writes, place, place[gradient.name], last) for gradient, end in pairs):
        return
    # Weight decay, say, would make new values of all weights before the first gradient is there.
    own = {t.name: gradient for gradient, end in pairs for t in end.inputs if t.dtype == tf.resource}
    for op in operations[last + 1 :]:
        for tensor in op.inputs:
            if tensor.name in own:
                op._add_control_input(own[tensor.name])
    later = [place[gradient.name] for gradient, _ in pairs[_AHEAD:]] + [last + 1]
    for (_, end), start, stop in zip(pairs, later, later[1:]):
        for op in operations[start:stop]:
            op._add_control_input(end)


def _writes(operations: Iterable[tf.Operation]) -> Dict[str, List[tf.Operation]]:
    """Return, by the name of a variable's handle, the ops that write the variable."""
    found: Dict[str, List[tf.Operation]] = {}
    for op in operations:
        for handle in written_by(op):
            found.setdefault(handle.name, []).append(op)
    return found


def _needs_later(
    end: tf.Operation, writes: Dict[str, List[tf.Operation]], place: Dict[str, int], first: int, last: int
) -> bool:
    """Return whether `end` needs an op at a place after `first`, up to `last`: by values, or by variables."""

    def sources(op: tf.Operation) -> Iterator[tf.Operation]:
        yield from (tensor.op for tensor in op.inputs)
        yield from op.control_inputs
        # When tracing ends, TensorFlow has what reads a variable wait for what wrote it before.
        yield from (w for t in op.inputs for w in writes.get(t.name, ()) if place[w.name] < place[op.name])

    needed = reached(sources(end), lambda op: sources(op) if place[op.name] > last else ())
    return any(first < place[op.name] <= last for op in needed)
