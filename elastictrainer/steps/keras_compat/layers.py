"""The layers of a model: those inside it, calls on symbolic inputs, and networks in inference mode."""

import contextlib
import importlib
from typing import Any, Iterator, List, Tuple

import numpy as np
import tensorflow as tf

from elastictrainer.steps.keras_compat.version import KERAS_3

KEEPS = "elastictrainer_keeps_statistics"  # an attribute of norms: see `keep_statistics`


def layers_inside(layer: tf.keras.layers.Layer, recursive: bool = False) -> List[tf.keras.layers.Layer]:
    """Return the layers that `layer` holds, in their order; with `recursive` those that these hold too."""
    return list(layer._flatten_layers(include_self=False, recursive=recursive))


def read_by_several(layer: tf.keras.layers.Layer) -> bool:
    """Return whether more than one layer, or a regulariser, is seen to read what a layer makes."""
    return layer.activity_regularizer is not None or len(layer._outbound_nodes) > len(layer._inbound_nodes)


def replaced_by_user(layer: tf.keras.layers.Layer) -> bool:
    """Return whether a user has put a function on the object that computes the layer's outputs."""
    return not {"call", "convolution_op", "_jit_compiled_convolution_op"}.isdisjoint(vars(layer))


def maker_of(tensor: tf.Tensor) -> Any:
    """Return what makes an output of a functional model, a layer or an operation; None of another model."""
    history = getattr(tensor, "_keras_history", None)
    return history and (history.operation if KERAS_3 else history.layer)


def layers_before(tensor: tf.Tensor) -> Iterator[tf.keras.layers.Layer]:
    """Return the layers that make an output of a functional model, the last first; none of another model."""
    last = maker_of(tensor)
    if last is None:
        return
    nodes = [last._inbound_nodes[tensor._keras_history.node_index]]
    for node in nodes:  # to which are added those before it
        made_by = node.operation if KERAS_3 else node.layer
        if isinstance(made_by, tf.keras.layers.Layer):
            yield made_by
        nodes += [parent for parent in node.parent_nodes if parent not in nodes]


def take(inputs: tf.Tensor, indices: Any, axis: int) -> tf.Tensor:
    """Gather from symbolic inputs as `tf.gather` does, which rejects those of Keras 3."""
    return tf.keras.ops.take(inputs, indices, axis=axis) if KERAS_3 else tf.gather(inputs, indices, axis=axis)


def argmax(inputs: tf.Tensor) -> tf.Tensor:
    """Return the largest index over the last axis of symbolic inputs, as `tf.argmax` does."""
    return tf.keras.ops.argmax(inputs, axis=-1) if KERAS_3 else tf.argmax(inputs, axis=-1)


@tf.keras.utils.register_keras_serializable("elastictrainer")
class InferenceMode(tf.keras.layers.Wrapper):
    """A network that always runs in inference mode: frozen statistics, no dropout. It can be trained."""

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return self.layer(inputs, training=False)


def in_inference_mode(network: tf.keras.Model, inputs: tf.Tensor) -> tf.Tensor:
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

    def cleaned(layer: tf.keras.layers.Layer) -> tf.keras.layers.Layer:
        return for_inference(layer, skipped) if _is_functional(layer) else layer

    def replacement(layer: tf.keras.layers.Layer) -> tf.keras.layers.Layer:
        return tf.keras.layers.Identity() if isinstance(layer, skipped) else cleaned(layer)

    def call(layer: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(layer, skipped):
            return arguments[0]
        if isinstance(layer, InferenceMode):
            return cleaned(layer.layer)(*arguments)
        return layer(*arguments, **options)

    if not KERAS_3:
        return tf.keras.models.clone_model(model, clone_function=replacement)
    if isinstance(model, tf.keras.Sequential):
        model = tf.keras.Model(model.inputs, model.outputs, name=model.name)
    return tf.keras.models.clone_model(model, clone_function=cleaned, call_function=call)


def _is_functional(layer: tf.keras.layers.Layer) -> bool:
    """Return whether the layer is a network of which Keras knows the graph of its layers."""
    home = f"keras.src.{'models' if KERAS_3 else 'engine'}.functional"
    functional = importlib.import_module(home).Functional
    return isinstance(layer, (functional, tf.keras.Sequential)) and layer.built


def keep_statistics(model: tf.keras.Model) -> bool:
    """Let norms that know their inputs' statistics keep them in steps; returns whether there is one.

    Those of a network that was never trained are 0 and 1, and have to be learned.
    """
    norms = [
        layer
        for layer in layers_inside(model, recursive=True)
        if type(layer) is tf.keras.layers.BatchNormalization
        and layer.built
        and (np.any(np.asarray(layer.moving_mean) != 0) or np.any(np.asarray(layer.moving_variance) != 1))
    ]
    for layer in norms:
        setattr(layer, KEEPS, True)
    return bool(norms)


def keeps_statistics(model: tf.keras.Model) -> bool:
    return any(getattr(layer, KEEPS, False) for layer in layers_inside(model, recursive=True))


def layers_in_bfloat16(model: tf.keras.Model) -> List[tf.keras.layers.Layer]:
    """Return the layers, and networks, that compute in bfloat16 on weights in float32."""
    layers = [model, *layers_inside(model, recursive=True)]
    return [layer for layer in layers if layer.dtype_policy.name == "mixed_bfloat16"]


def compute_in_float32(model: tf.keras.Model) -> None:
    """Let layers that compute in bfloat16 compute in float32, which their weights are."""
    _set_policy(layers_in_bfloat16(model), "float32")


@contextlib.contextmanager
def computing_in_float32(model: tf.keras.Model) -> Iterator[None]:
    """Let layers that compute in bfloat16 compute in float32 for a while, in which graphs are traced."""
    layers = layers_in_bfloat16(model)
    _set_policy(layers, "float32")
    try:
        yield
    finally:
        _set_policy(layers, "mixed_bfloat16")


def _set_policy(layers: List[tf.keras.layers.Layer], policy: str) -> None:
    for layer in layers:
        if KERAS_3:
            layer.dtype_policy = policy
        else:
            layer._set_dtype_policy(policy)


def save_for_serving(model: tf.keras.Model, folder: str) -> None:
    """Write a SavedModel of the network in inference mode."""
    if KERAS_3:  # its random layers augment wherever nobody says otherwise
        (pixels,) = model.inputs
        inputs = tf.keras.Input(pixels.shape[1:], dtype=pixels.dtype, name=pixels.name)
        tf.keras.Model(inputs, InferenceMode(model, dtype="float32")(inputs)).export(folder, verbose=False)
    else:
        tf.saved_model.save(model, folder)
