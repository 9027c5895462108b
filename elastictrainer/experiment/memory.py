"""A check that a training step fits into this machine's memory, before TensorFlow ends the process."""

from typing import Any, Optional

import numpy as np
import tensorflow as tf

from elastictrainer.errors import UsageError
from elastictrainer.experiment.settings import parse_bytes
from elastictrainer.runs import resident
from elastictrainer.runs.environment import memory_bytes
from elastictrainer.steps.keras_compat.layers import layers_inside
from elastictrainer.training import memory_limit

_FLOAT = 4  # bytes
# Gradients need about half of what the layers give; the others are overwritten or computed again.
_KEPT = 0.5


def limit(asked: Optional[str]) -> Optional[float]:
    """Return the bytes that a run may take by --memory; None: as many as it takes. UsageError on a GPU.

    With a limit, this process gives large blocks of memory back from here on.
    """
    if asked is None:
        return None
    if tf.config.list_physical_devices("GPU"):
        raise UsageError(f"--memory {asked}: a step on a GPU takes the GPU's memory. Leave it out.")
    resident.release_large_blocks()  # from the profile on
    return memory_limit.automatic_limit() if asked == "auto" else parse_bytes(asked)


def require_enough(model: tf.keras.Model, batch_size: int) -> None:
    """Raise UsageError if one full step's activations exceed all memory; a GPU is not checked."""
    if tf.config.list_physical_devices("GPU"):
        return
    needed, there = step_bytes(model, batch_size), memory_bytes()
    if needed > there:
        pixels = "x".join(map(str, model.input_shape[1:3]))
        raise UsageError(
            f"a step of {batch_size} images of {pixels} pixels takes some {needed / 1e9:.1f} GB, and this "
            f"machine has {there / 1e9:.1f} GB. Lower --batch-size or --image-size."
        )


def step_bytes(model: tf.keras.Model, batch_size: int) -> int:
    """Estimate, rather too low than too high, the bytes of the layers' outputs that gradients need."""
    layers = layers_inside(model, recursive=True)
    made_of_none = (layer for layer in layers if not layers_inside(layer))
    computing = (layer for layer in made_of_none if not isinstance(layer, tf.keras.layers.InputLayer))
    return int(_KEPT * _FLOAT * batch_size * sum(map(_elements, computing)))


def _elements(layer: Any) -> float:
    """Return how many numbers a layer's output holds for one example; 0 where it does not tell."""
    try:
        outputs = tf.nest.flatten(layer.output)
    except (AttributeError, RuntimeError, ValueError):  # not called yet, or several times
        return 0
    return float(sum(np.prod([d for d in o.shape[1:] if d] or [0], dtype=float) for o in outputs))
