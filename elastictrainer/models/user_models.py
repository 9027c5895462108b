"""The user's own models: a Keras file, or a function that makes one; loaded and checked."""

import inspect
from pathlib import Path
from typing import Any, Tuple

import tensorflow as tf

from elastictrainer.errors import UsageError
from elastictrainer.registry import named
from elastictrainer.steps.keras_compat import load_model


def from_file(path: str) -> tf.keras.Model:
    if not Path(path).is_file():
        raise UsageError(f"there is no model file {path}.")
    try:
        return load_model(path)
    except Exception as error:  # Keras raises many kinds for a damaged or unsafe file
        raise UsageError(f"Keras cannot load {path}: {error}") from None


def from_function(name: str, classes: int, input_shape: Tuple[int, int, int]) -> tf.keras.Model:
    function = named("--model", name)
    offered = {"num_classes": classes, "input_shape": input_shape}
    taken = inspect.signature(function).parameters
    try:
        return function(**{key: value for key, value in offered.items() if key in taken})
    except Exception as error:  # the user's own code
        raise UsageError(f"--model {name} failed: {type(error).__name__}: {error}") from error


def check(name: str, model: Any, classes: int) -> None:
    if not isinstance(model, tf.keras.Model):
        raise UsageError(f"--model {name} gave a {type(model).__name__}, not a Keras model.")
    if not model.built:
        raise UsageError(f"--model {name} is not built: call it once, or give it an input shape.")
    output = model.output_shape
    if not isinstance(output, tuple) or len(output) != 2 or output[1] != classes:
        raise UsageError(
            f"--model {name} gives outputs of shape {output}; the data has {classes} classes: (None, {classes})."
        )
    last = model.layers[-1] if model.layers else None
    if getattr(last, "activation", None) is tf.keras.activations.softmax or isinstance(
        last, tf.keras.layers.Softmax
    ):
        raise UsageError(
            f"--model {name} ends in a softmax; it must give logits. Remove the last activation."
        )
