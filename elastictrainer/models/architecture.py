"""The description of a built-in model: its backbone, and the pixels and weights it needs."""

from dataclasses import dataclass
from typing import Any, Callable, Optional, Tuple

import tensorflow as tf


@dataclass(frozen=True)
class WeightsFile:
    """The file of a backbone's pre-trained weights: its name, and the folder where its library keeps it.

    `fetch` downloads it through that library if it is missing, and returns its path.
    """

    name: str
    home: str
    fetch: Callable[[], str]


@dataclass(frozen=True)
class Architecture:
    """The parts of one of the built-in models.

    Attributes:
        backbone: from input shape (H, W, 3) and weights file (None: random weights) to a Keras model that
            gives features (batch, h, w, channels) or pooled features (batch, channels).
        preprocess: from raw pixels (batch, H, W, 3) in 0..255 to the values that the backbone was trained on.
        image_size: default height and width, in pixels.
        weights: tells the file of its pre-trained weights; it may take as long as making the backbone.
        least_size: smallest height and width, in pixels.
        augment: its default augmentation, a name of `registry.AUGMENT`.
    """

    backbone: Callable[[Tuple[int, int, int], Optional[str]], tf.keras.Model]
    preprocess: Callable[[Any], Any]
    image_size: int
    weights: Callable[[], WeightsFile]
    least_size: int = 1
    augment: str = "flip"
