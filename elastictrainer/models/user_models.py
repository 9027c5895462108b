"""The user's own models: a function that makes one, and what any must be."""

import inspect
from typing import Any, Tuple

import tensorflow as tf

from elastictrainer.errors import UsageError
from elastictrainer.registry import import_object


def from_function(name: str, classes: int, input_shape: Tuple[int, int, int]) -> tf.keras.Model:
    """Call the user's function "package.module:function"; UsageError where it cannot be imported, or raises.

    It gets what it has parameters for: `classes` as `num_classes`, and `input_shape` (height, width,
    channels).
    """
    function = import_object("--model", name)
    arguments = {"num_classes": classes, "input_shape": input_shape}
    parameters = inspect.signature(function).parameters
    try:
        return function(**{key: value for key, value in arguments.items() if key in parameters})
    except Exception as error:  # the user's own code
        raise UsageError(f"--model {name} failed: {type(error).__name__}: {error}") from error


def require_logits(name: str, model: Any, classes: int) -> None:
    """Raise UsageError unless the model `name` is a built Keras model of float32 logits (batch, classes)."""
    why = _no_logits(model, classes)
    if why:
        raise UsageError(f"--model {name} {why}.")


def _no_logits(model: Any, classes: int) -> str:
    if not isinstance(model, tf.keras.Model):
        return f"gave a {type(model).__name__}, not a Keras model"
    if not model.built:
        return "is not built: call it once, or give it an input shape"
    output = model.output_shape
    if not isinstance(output, tuple) or len(output) != 2 or output[1] != classes:
        return f"gives outputs of shape {output}; the data has {classes} classes: (None, {classes})"
    activation = last_activation(model)
    if activation:
        return f"ends in a {activation}; it must give logits. Remove the last activation"
    dtype = model.layers[-1].compute_dtype if model.layers else "float32"
    if dtype in ("bfloat16", "float16"):
        return f'gives {dtype} logits, too coarse for a loss: make its last layer with dtype="float32"'
    return ""


def last_activation(model: tf.keras.Model) -> str:
    """Name the activation that makes a model's only output: "softmax", "sigmoid" or "" for any other."""
    inputs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in model.inputs]
    function = tf.function(lambda x: model(x, training=False))
    graph = function.get_concrete_function(inputs if len(inputs) > 1 else inputs[0]).graph
    return activation_of(graph.outputs[0])


def activation_of(outputs: tf.Tensor) -> str:
    """Name the op, "softmax" or "sigmoid", that makes a tensor of a graph; "" where it is another.

    The graph knows also where a layer has a function as its activation, or stands in another model.
    """
    op = outputs.op
    while op.type in _SAME_VALUES:
        op = op.inputs[0].op
    return {"Softmax": "softmax", "Sigmoid": "sigmoid"}.get(op.type, "")


# Ops that hand on the values of their first input.
_SAME_VALUES = ("Identity", "Cast", "Reshape", "Squeeze", "StopGradient", "PreventGradient", "EnsureShape")
