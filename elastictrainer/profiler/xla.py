"""What XLA compiles is one op to the profiler; refused where that hides which tensor the time belongs to."""

from typing import Any, Dict, Iterable, List, Sequence, Set

import tensorflow as tf

from elastictrainer.errors import UsageError
from elastictrainer.profiler.functions import CALLS

_PASSED_ON = ("ReadVariableOp", "Identity", "Cast")  # between a tensor and the call that computes with it


def refuse_compiled(graph: tf.Graph, handles: Sequence[Any], names: Sequence[str]) -> None:
    """UsageError where XLA would make one op of several tensors' work, so that their time cannot be told apart.

    A compiled call that computes with one trainable tensor at most is let through: its gradient and the gradient on its
    way run as a whole or not at all, and are charged so. Keras itself compiles grouped convolutions on a CPU (ConvNeXt).

    Args:
        graph: of a traced training step.
        handles: per trainable tensor the graph's tensor of its resource handle, or None.
        names: of the trainable tensors.
    """
    if tf.config.optimizer.get_jit():
        raise UsageError(
            "TensorFlow's auto-clustering is on (tf.config.optimizer.set_jit): it fuses ops so that no tensor's time can be "
            "told apart. Switch it off: set_jit('')."
        )
    library = graph.as_graph_def().library
    compiled = compiled_functions(library)
    if not compiled:
        return
    tensor_of = {handle.name: k for k, handle in enumerate(handles) if handle is not None}
    operations = graph.get_operations()
    for op in operations:
        if op.type in CALLS and op.get_attr("f").name in compiled:
            inside = sorted({tensor_of[h] for h in map(_source, op.inputs) if h in tensor_of})
            if len(inside) > 1:
                raise _refusal(op.get_attr("f").name, f" ({', '.join(names[k] for k in inside[:3])}, ...)")
    for function in _called_from([op.node_def for op in operations], library, compiled):
        if function in compiled:
            raise _refusal(function, "")


def compiled_functions(library: Any) -> Set[str]:
    """Names of the functions of a graph's library that XLA is to compile."""
    return {function.signature.name for function in library.function if function.attr["_XlaMustCompile"].b}


def _refusal(function: str, tensors: str) -> UsageError:
    return UsageError(
        f"the model or its loss is compiled by XLA in part ({function}), several tensors in one{tensors}: their time cannot "
        "be told apart. Remove jit_compile=True."
    )


def _source(tensor: Any) -> str:
    """The name of what `tensor` is read from."""
    while tensor.op.type in _PASSED_ON:
        tensor = tensor.op.inputs[0]
    return tensor.name


def _called_from(nodes: Iterable[Any], library: Any, compiled: Set[str]) -> Set[str]:
    """The functions that are called inside the functions that `nodes` call and XLA does not compile."""
    bodies: Dict[str, List[Any]] = {f.signature.name: list(f.node_def) for f in library.function}
    inside: Set[str] = set()
    pending = [name for node in nodes for name in _functions_of(node) if name not in compiled]
    while pending:
        for node in bodies.pop(pending.pop(), []):
            called = _functions_of(node)
            inside.update(called)
            pending += [name for name in called if name not in compiled]
    return inside


def _functions_of(node: Any) -> List[str]:
    """The functions that stand in a node's attributes."""
    values = node.attr.values()
    return [f.name for value in values for f in (value.func, *value.list.func) if f.name]
