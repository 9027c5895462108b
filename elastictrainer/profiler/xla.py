"""The profiler sees what XLA compiles as one op: refused where selections must tell its parts apart."""

from typing import Any, Dict, Iterable, List, Sequence, Set

import tensorflow as tf

from elastictrainer.errors import UsageError
from elastictrainer.profiler.function_bodies import CALLS, compiled_functions

_PASSED_ON = ("ReadVariableOp", "Identity", "Cast")  # between a tensor and the call that computes with it
_SHOWN = 3  # tensor names in a message: as many as identify the layer


def refuse_compiled(graph: tf.Graph, handles: Sequence[Any], names: Sequence[str]) -> None:
    """Raise UsageError if XLA makes one op of work that selections must distinguish.

    Allowed is a call that computes with one variable and one activation, and its backward pass: both
    gradients run together or not at all, and are charged so. Keras itself compiles grouped convolutions on a
    CPU (ConvNeXt).

    Args:
        graph: of a traced training step.
        handles: per trainable tensor the graph's tensor of its resource handle, or None.
        names: of the trainable tensors.
    """
    if tf.config.optimizer.get_jit():
        raise UsageError(
            "TensorFlow's auto-clustering is on (tf.config.optimizer.set_jit): it fuses ops, so that no "
            "tensor's time can be measured. Switch it off: set_jit('')."
        )
    library = graph.as_graph_def().library
    compiled = compiled_functions(library)
    if not compiled:
        return
    name_of = {handle.name: names[k] for k, handle in enumerate(handles) if handle is not None}
    forward_of = {f.signature.name: f.attr["forward_function_name"].s.decode() for f in library.function}
    operations = graph.get_operations()
    calls = [op for op in operations if op.type in CALLS and op.get_attr("f").name in compiled]
    layers = {op.get_attr("f").name for op in calls if _is_one_layer(op)}
    for op in calls:
        function = op.get_attr("f").name
        if not _is_one_layer(op) and forward_of[function] not in layers:
            raise _refusal(
                function, sorted({name_of[s.name] for s in map(_source, op.inputs) if s.name in name_of})
            )
    for function in _called_from([op.node_def for op in operations], library, compiled):
        if function in compiled:
            raise _refusal(function, [])


def _is_one_layer(call: Any) -> bool:
    """Return whether `call` computes with one variable, trainable or not, and one activation."""
    sources = {source.name: source for source in map(_source, call.inputs)}.values()
    variables = sum(source.dtype == tf.resource for source in sources)
    return variables == 1 and sum(source.op.type != "Const" for source in sources) <= 2


def _refusal(function: str, tensors: Sequence[str]) -> UsageError:
    shown = [*tensors[:_SHOWN], "..."] if len(tensors) > _SHOWN else tensors
    return UsageError(
        f"the model or its loss is compiled by XLA in part ({function}): the profiler cannot "
        "look inside"
        + (f", and it computes with {', '.join(shown)}" if shown else "")
        + ". Remove jit_compile=True; only a function of one variable and one activation may be compiled."
    )


def _source(tensor: Any) -> Any:
    """Return the op or input that `tensor` is read from."""
    while tensor.op.type in _PASSED_ON:
        tensor = tensor.op.inputs[0]
    return tensor


def _called_from(nodes: Iterable[Any], library: Any, compiled: Set[str]) -> Set[str]:
    """Return the functions called inside those that `nodes` call and XLA does not compile."""
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
    """Return the functions that a node's attributes name."""
    values = node.attr.values()
    return [f.name for value in values for f in (value.func, *value.list.func) if f.name]
