"""Random changes of training images, in layers of Keras that the exported model is without."""

from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, List, Optional, Tuple

import tensorflow as tf

from elastictrainer.registry import AUGMENT
from elastictrainer.steps.keras_compat.layers import layers_inside

# By attributes of `Augmentation`: layers that change their input in training only, and their arguments.
_LAYERS: Dict[str, Tuple[Any, Callable[[float], List[Any]]]] = {
    "flip": (tf.keras.layers.RandomFlip, lambda _: ["horizontal"]),
    "rotation": (tf.keras.layers.RandomRotation, lambda turns: [turns]),
    "shift": (tf.keras.layers.RandomTranslation, lambda share: [share, share]),
    "zoom": (tf.keras.layers.RandomZoom, lambda share: [(-share, share)]),
    "contrast": (tf.keras.layers.RandomContrast, lambda share: [share]),
    "brightness": (tf.keras.layers.RandomBrightness, lambda share: [share, (0, 255)]),
}
AUGMENTATION = tuple(kind for kind, _ in _LAYERS.values())


@dataclass(frozen=True)
class Augmentation:
    """The largest random changes of a training image; zero: none."""

    flip: bool = False  # it is mirrored left to right
    rotation: float = 0.0  # to either side, in turns
    shift: float = 0.0  # in each direction, as a share of the image's height and width
    zoom: float = 0.0  # in or out, as a share
    contrast: float = 0.0  # up or down, as a share
    brightness: float = 0.0  # up or down, as a share of white


# By the names of `registry.AUGMENT`. 0.03 turns are 11 degrees: a camera that is not held level.
PRESETS: Dict[str, Augmentation] = {
    "none": Augmentation(),
    "flip": Augmentation(flip=True),
    "standard": Augmentation(flip=True, rotation=0.03, zoom=0.1),
    "strong": Augmentation(flip=True, rotation=0.05, shift=0.1, zoom=0.2, contrast=0.3, brightness=0.2),
    "paper": Augmentation(flip=True, rotation=0.2),
}


def from_preset(preset: str, rotation: Optional[float] = None, flip: Optional[bool] = None) -> Augmentation:
    """Return a preset, with another rotation or flip where one is given; UsageError for an unknown name."""
    AUGMENT.check(preset)
    given: Dict[str, Any] = {"rotation": rotation, "flip": flip}
    return replace(PRESETS[preset], **{key: value for key, value in given.items() if value is not None})


def make_layers(augmentation: Augmentation) -> List[Any]:
    """Make the layers to call in turn on pixels (batch, H, W, 3) in 0..255. They compute in float32."""
    amounts = {name: amount for name, amount in vars(augmentation).items() if amount}
    return [_LAYERS[name][0](*_LAYERS[name][1](amounts[name]), dtype="float32") for name in amounts]


def find_layers(model: tf.keras.Model) -> List[Any]:
    """Return the model's augmentation layers, those inside other layers included."""
    return [layer for layer in layers_inside(model, recursive=True) if isinstance(layer, AUGMENTATION)]


def layer_kinds(model: tf.keras.Model) -> List[str]:
    return [type(layer).__name__ for layer in find_layers(model)]
