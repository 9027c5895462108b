"""The kinds of trainable tensors of a Keras model: head, bias, normalisation, convolution kernel."""

from typing import Iterator

import numpy as np
import tensorflow as tf

from elastictrainer.steps.keras_compat.layers import layers_before, layers_inside
from elastictrainer.steps.keras_compat.variables import name_of

_NORMALISATIONS = tuple(
    getattr(tf.keras.layers, f"{kind}Normalization")
    for kind in ("Batch", "Layer", "Group", "Unit", "RMS")
    if hasattr(tf.keras.layers, f"{kind}Normalization")
)


def _leaves(layer: tf.keras.layers.Layer) -> Iterator[tf.keras.layers.Layer]:
    """Yield the layers inside `layer` that hold weights, nested models opened, in their order."""
    inner = layers_inside(layer)
    if not inner:
        yield layer
    for part in inner:
        yield from _leaves(part)


def _mask(model: tf.keras.Model, wanted: list) -> np.ndarray:
    ids = {id(v) for v in wanted}
    return np.array([id(v) in ids for v in model.trainable_weights], bool)


def head_mask(model: tf.keras.Model) -> np.ndarray:
    """Return (N,) bool: the tensors of each output's last layer that has trainable ones."""
    outputs = getattr(model, "outputs", None) or []
    heads = [next(filter(None, map(_last_trainable, layers_before(output))), []) for output in outputs]
    if len(heads) > 1 and all(heads):
        return _mask(model, [tensor for head in heads for tensor in head])
    return _mask(model, _last_trainable(model))


def _last_trainable(layer: tf.keras.layers.Layer) -> list:
    found = (leaf.trainable_weights for leaf in reversed(list(_leaves(layer))))
    return next(filter(None, found), [])


def bias_and_norm_mask(model: tf.keras.Model) -> np.ndarray:
    """Return (N,) bool: every bias, and the tensors of normalisation layers."""
    wanted = [
        v for layer in _leaves(model) if isinstance(layer, _NORMALISATIONS) for v in layer.trainable_weights
    ]
    wanted += [v for v in model.trainable_weights if name_of(v).split("/")[-1] == "bias"]
    return _mask(model, wanted)


def convolution_kernels(model: tf.keras.Model) -> list:
    """Return the trainable kernels (h, w, in, out) of plain 2-D convolutions."""
    layers = [layer for layer in _leaves(model) if type(layer) is tf.keras.layers.Conv2D]
    trainable = {id(v) for v in model.trainable_weights}
    return [layer.kernel for layer in layers if id(layer.kernel) in trainable]
