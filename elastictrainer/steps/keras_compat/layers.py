"""The layers of a model, and what is done with symbolic inputs."""

from typing import Any, Iterator, List

import tensorflow as tf

from elastictrainer.steps.keras_compat.version import KERAS_3


def layers_inside(layer: Any, recursive: bool = False) -> List[Any]:
    """Return the layers that `layer` holds, in their order; with `recursive` those that these hold too."""
    return list(layer._flatten_layers(include_self=False, recursive=recursive))


def layers_before(tensor: Any) -> Iterator[Any]:
    """Return the layers that make an output of a functional model, the last first; none of another model."""
    history = getattr(tensor, "_keras_history", None)
    if history is None:
        return
    last = history.operation if KERAS_3 else history.layer
    nodes = [last._inbound_nodes[history.node_index]]
    for node in nodes:  # to which are added those before it
        made_by = node.operation if KERAS_3 else node.layer
        if isinstance(made_by, tf.keras.layers.Layer):
            yield made_by
        nodes += [parent for parent in node.parent_nodes if parent not in nodes]


def take(inputs: Any, indices: Any, axis: int) -> Any:
    """Gather from symbolic inputs as `tf.gather` does, which rejects those of Keras 3."""
    return tf.keras.ops.take(inputs, indices, axis=axis) if KERAS_3 else tf.gather(inputs, indices, axis=axis)


def argmax(inputs: Any) -> Any:
    """Return the largest index over the last axis of symbolic inputs, as `tf.argmax` does."""
    return tf.keras.ops.argmax(inputs, axis=-1) if KERAS_3 else tf.argmax(inputs, axis=-1)
