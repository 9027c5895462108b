"""The preprocessing that a backbone needs, in layers that can be saved and exported."""

from dataclasses import dataclass
from typing import Any, Callable, List, Tuple, Union

import numpy as np
import tensorflow as tf

from elastictrainer.steps.keras_compat.layers import take

_RGB = (0, 1, 2)


@dataclass(frozen=True)
class Preprocessing:
    """An order of channels, then a scale and an offset for each.

    Attributes:
        order: for each channel that the backbone takes, the channel of the picture (red, green, blue).
        scale, offset: by channel of the backbone.
    """

    order: Tuple[int, ...] = _RGB
    scale: Tuple[float, ...] = (1.0, 1.0, 1.0)
    offset: Tuple[float, ...] = (0.0, 0.0, 0.0)

    def __call__(self, pixels: Any) -> Any:
        """Apply it to symbolic pixels (batch, H, W, 3) in 0..255, in float32."""
        if self.order != _RGB:
            pixels = take(pixels, list(self.order), axis=-1)
        if self.scale == Preprocessing.scale and self.offset == Preprocessing.offset:
            return pixels
        rescaling = tf.keras.layers.Rescaling(
            _plain(self.scale), offset=_plain(self.offset), name="preprocess", dtype="float32"
        )
        return rescaling(pixels)


def _plain(values: Tuple[float, ...]) -> Union[float, List[float]]:
    return values[0] if len(set(values)) == 1 else list(values)


def infer_preprocessing(function: Callable[[np.ndarray], np.ndarray]) -> Preprocessing:
    """Find how a `preprocess_input` of Keras' changes pixels, by giving it some.

    ValueError where it does more than to reorder, scale and shift channels.
    """

    def apply(pixels: Any) -> np.ndarray:
        return np.array(function(np.array(pixels, np.float64).reshape(1, -1, 1, 3))).reshape(-1, 3)

    offset = apply([0, 0, 0])[0]
    slopes = ((apply(255 * np.eye(3)) - offset) / 255).T  # by channel of the result, then of the picture
    order = np.abs(slopes).argmax(axis=1)
    scale = slopes[_RGB, order]
    sample = np.random.default_rng(0).uniform(0, 255, (16, 3))
    if not np.allclose(apply(sample), sample[:, order] * scale + offset, rtol=0, atol=1e-9):
        raise ValueError("it does more than to reorder, scale and shift channels")
    # Fifteen digits: what is left of the rounding in the subtraction above is dropped.
    exact = [tuple(float(f"{x:.15g}") for x in values) for values in (scale, offset)]
    return Preprocessing(tuple(int(k) for k in order), *exact)
