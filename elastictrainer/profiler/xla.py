"""The profiler sees what XLA compiles as one op: refused where selections must tell its parts apart."""

from typing import Any, Dict, Sequence

import tensorflow as tf

from elastictrainer.errors import UsageError
from elastictrainer.profiler.function_bodies import compiled_functions
from elastictrainer.steps.graph_library import CALLS, called

_PASSED_ON = ("ReadVariableOp", "Identity", "Cast")  # between a tensor and the call that computes with it


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
    calls = [op for op in graph.get_operations() if op.type in CALLS and op.get_attr("f").name in compiled]
    layers = {op.get_attr("f").name for op in calls if _is_one_layer(op)}
    forward_of = {f.signature.name: f.attr["forward_function_name"].s.decode() for f in library.function}
    refused: Dict[str, Any] = {
        op.get_attr("f").name: op.inputs
        for op in calls
        if not _is_one_layer(op) and forward_of[op.get_attr("f").name] not in layers
    }
    # Inside another function the arguments of a call do not show what it computes with.
    for function in library.function if compiled else ():
        if function.signature.name not in compiled:
            inside = {name for node in function.node_def for name in called(node)}
            refused.update(dict.fromkeys(inside & compiled, ()))
    if refused:
        name, inputs = next(iter(refused.items()))
        name_of = {handle.name: tensor for handle, tensor in zip(handles, names) if handle is not None}
        tensors = sorted({name_of[s.name] for s in map(_source, inputs) if s.name in name_of})
        raise UsageError(
            f"the model or its loss is compiled by XLA in part ({name}): the profiler cannot look inside"
            + (f", and it computes with {tensors[0]}" if tensors else "")
            + ". Remove jit_compile=True; only a function of one variable and one activation may be compiled."
        )


def _is_one_layer(call: Any) -> bool:
    """Return whether `call` computes with one variable, trainable or not, and one activation."""
    sources = {source.name: source for source in map(_source, call.inputs)}.values()
    variables = sum(source.dtype == tf.resource for source in sources)
    return variables == 1 and sum(source.op.type != "Const" for source in sources) <= 2


def _source(tensor: Any) -> Any:
    """Return the op or input that `tensor` is read from."""
    while tensor.op.type in _PASSED_ON:
        tensor = tensor.op.inputs[0]
    return tensor
