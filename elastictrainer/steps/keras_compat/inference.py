"""Networks in inference mode: inside a model that trains, and for export."""

import importlib
from typing import Any, Tuple

import tensorflow as tf

from elastictrainer.steps.keras_compat.layers import layers_inside
from elastictrainer.steps.keras_compat.version import KERAS_3


@tf.keras.utils.register_keras_serializable("elastictrainer")
class InferenceMode(tf.keras.layers.Wrapper):
    """A network that always runs in inference mode: frozen statistics, no dropout. It can be trained."""

    def call(self, inputs: Any) -> Any:
        return self.layer(inputs, training=False)


def in_inference_mode(network: tf.keras.Model, inputs: Any) -> Any:
    """Call `network` on symbolic `inputs`, always with training=False.

    Keras 2 keeps the argument of a symbolic call; Keras 3 replaces it by that of the outermost call.
    """
    return InferenceMode(network)(inputs) if KERAS_3 else network(inputs, training=False)


def for_inference(model: tf.keras.Model, skipped: Tuple[type, ...]) -> tf.keras.Model:
    """Rebuild the network with the same weights, in Keras' own layers, without those of the types `skipped`.

    Random layers would augment wherever nobody says otherwise. Networks inside are done likewise.
    """
    if not any(
        isinstance(layer, (InferenceMode, *skipped)) for layer in layers_inside(model, recursive=True)
    ):
        return model

    def cleaned(layer: Any) -> Any:
        return for_inference(layer, skipped) if _is_functional(layer) else layer

    def kept(layer: Any) -> Any:
        return tf.keras.layers.Identity() if isinstance(layer, skipped) else cleaned(layer)

    def call(layer: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(layer, skipped):
            return arguments[0]
        if isinstance(layer, InferenceMode):
            return cleaned(layer.layer)(*arguments)
        return layer(*arguments, **options)

    if not KERAS_3:
        return tf.keras.models.clone_model(model, clone_function=kept)
    if isinstance(model, tf.keras.Sequential):
        model = tf.keras.Model(model.inputs, model.outputs, name=model.name)
    return tf.keras.models.clone_model(model, clone_function=cleaned, call_function=call)


def _is_functional(layer: Any) -> bool:
    """Return whether the layer is a network of which Keras knows the graph of its layers."""
    home = f"keras.src.{'models' if KERAS_3 else 'engine'}.functional"
    functional = importlib.import_module(home).Functional
    return isinstance(layer, (functional, tf.keras.Sequential)) and layer.built


def compute_in_float32(model: tf.keras.Model) -> None:
    """Let layers that compute in bfloat16 compute in float32, which their weights are."""
    for layer in [model, *layers_inside(model, recursive=True)]:
        if layer.compute_dtype != "bfloat16":
            continue
        if KERAS_3:
            layer.dtype_policy = "float32"
        else:
            layer._set_dtype_policy("float32")


def save_for_serving(model: tf.keras.Model, folder: str) -> None:
    """Write a SavedModel of the network in inference mode."""
    if KERAS_3:  # its random layers augment wherever nobody says otherwise
        (pixels,) = model.inputs
        inputs = tf.keras.Input(pixels.shape[1:], dtype=pixels.dtype, name=pixels.name)
        tf.keras.Model(inputs, InferenceMode(model, dtype="float32")(inputs)).export(folder, verbose=False)
    else:
        tf.saved_model.save(model, folder)
