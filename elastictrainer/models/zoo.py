"""The built-in models: pre-trained backbones with a new head. `create` makes these and the user's own."""

from pathlib import Path
from typing import Optional, Tuple

import tensorflow as tf

from elastictrainer.errors import UsageError, reason
from elastictrainer.models import augmentation, keras_applications, model_file, user_models
from elastictrainer.models.architecture import Architecture, WeightsFile
from elastictrainer.models.preprocessing import Preprocessing
from elastictrainer.registry import HEAD_INIT, KERAS_NETWORKS, MODEL
from elastictrainer.steps.keras_compat.layers import in_inference_mode

_DEMO_HINT = "To see the whole program at work without any download: bash scripts/demo.sh"
_OWN_SIZE = 224  # pixels, for the user's own models
_MINUS_ONE_TO_ONE = Preprocessing(scale=(1 / 127.5,) * 3, offset=(-1.0,) * 3)


def _vit() -> Architecture:
    from elastictrainer.models import vision_transformer as vit

    file = WeightsFile(vit.WEIGHTS, "~/.keras/weights", vit.download)
    return Architecture(vit.backbone, _MINUS_ONE_TO_ONE, image_size=224, weights=lambda: file, least_size=16)


def _demo() -> Architecture:
    from elastictrainer.models import demo_network as demo

    file = WeightsFile(demo.WEIGHTS.name, "elastictrainer/assets", lambda: str(demo.WEIGHTS))
    return Architecture(demo.backbone, _MINUS_ONE_TO_ONE, image_size=32, weights=lambda: file, augment="none")


_OWN = {"vit": _vit, "demo": _demo}


def architecture(name: str) -> Architecture:
    """Describe a built-in model; UsageError where this Keras does not have it."""
    if name in KERAS_NETWORKS:
        return keras_applications.architecture(name)
    return _OWN[name]()


def default_image_size(name: str) -> int:
    """Return height and width in pixels that a built-in model is made for; 224 for the user's own."""
    return architecture(name).image_size if name in MODEL.names else _OWN_SIZE


def create(
    name: str,
    classes: int,
    image_size: Optional[int] = None,
    weights: str = "imagenet",
    head_init: str = "zeros",
    rotation: Optional[float] = None,
    flip: Optional[bool] = None,
    trust: bool = False,
    augment: Optional[str] = None,
) -> tf.keras.Model:
    """Build a model from raw pixels (batch, H, W, 3) in 0..255 to logits (batch, classes).

    A built-in model consists of augmentation, preprocessing, backbone with frozen batch-norm statistics,
    global average pooling, dropout 0.2, and a dense head. Only built-in models use `weights`, `head_init`,
    `augment`, `rotation` and `flip`.

    Args:
        name: of `registry.MODEL`; a path to a `.keras` file; or "package.module:function", see
            `user_models.from_function`.
        classes: number of classes, the width of the head.
        image_size: height and width in pixels; None: the model's default.
        weights: "imagenet" (demo network: its own pre-training), "none" (random weights), or a file.
        head_init: "zeros" (the backbone gets no gradient before the head's first update), "solve" (the same,
            until the run solves it), or "glorot" (as in the published code).
        rotation, flip, augment: see `augmentation.from_preset`; None: the model's default.
        trust: a `.keras` file may run code, see `model_file.read`.

    Raises:
        UsageError: unknown name; a file that is missing, belongs to another model or needs trust; an image
            size that the network cannot have; a model of the user's that does not give logits.
    """
    MODEL.check(name)
    if name not in MODEL.names:
        if name.endswith(".keras"):
            model = model_file.read(name, trust)
        else:
            model = user_models.from_function(name, classes, (image_size or _OWN_SIZE,) * 2 + (3,))
        user_models.require_logits(name, model, classes)
        return model
    HEAD_INIT.check(head_init)
    network = architecture(name)
    size = image_size or network.image_size
    features = pixels = tf.keras.Input((size, size, 3), name="pixels")
    for layer in augmentation.make_layers(
        augmentation.from_preset(augment or network.augment, rotation, flip)
    ):
        features = layer(features)
    features = network.preprocess(features)
    features = in_inference_mode(_backbone(name, network, (size, size, 3), weights), features)
    if len(features.shape) == 4:
        features = tf.keras.layers.GlobalAveragePooling2D()(features)
    features = tf.keras.layers.Dropout(0.2)(features)
    init = "glorot_uniform" if head_init == "glorot" else "zeros"  # one that is solved later starts at zero
    # In float32 whatever the others compute in: a softmax of rounded logits loses small differences.
    head = tf.keras.layers.Dense(classes, kernel_initializer=init, name="head", dtype="float32")
    return tf.keras.Model(pixels, head(features), name=name)


def _backbone(name: str, network: Architecture, shape: Tuple[int, int, int], weights: str) -> tf.keras.Model:
    if shape[0] < network.least_size:
        raise UsageError(
            f"{name} takes images of at least {network.least_size}x{network.least_size} pixels, "
            f"not {shape[0]}x{shape[1]}: raise --image-size."
        )
    file: Optional[str] = None if weights == "none" else weights
    if weights == "imagenet":
        known = network.weights()
        try:
            file = known.fetch()
        except Exception as error:  # whatever the download library raises without a network
            raise UsageError(
                f"the pre-trained weights of {name} are not on this machine and could not be downloaded "
                f"({reason(error)}). Put the file {known.name} into {known.home}, or pass "
                f"--weights path/to/file; --weights none starts from random weights. {_DEMO_HINT}"
            ) from None
    elif file is not None and not Path(file).is_file():
        raise UsageError(
            f"there is no weights file {file}. {name} takes {network.weights().name} "
            f"(or 'imagenet' to download it, 'none' for random weights). {_DEMO_HINT}"
        )
    try:
        return network.backbone(shape, file)
    except UsageError:
        raise
    except (ValueError, OSError, KeyError) as error:
        if file is None:
            raise UsageError(f"{name} cannot be made for input shape {shape}: {reason(error)}") from None
        raise UsageError(
            f"{file} does not hold the weights of {name} without its top ({reason(error)}); expected: "
            f"{network.weights().name}."
        ) from None


def input_size(model: tf.keras.Model, fallback: int) -> Tuple[int, int]:
    """Return height and width in pixels that the model takes; `fallback` for a dimension that it leaves open.

    UsageError where its input is not (batch, height, width, 3).
    """
    shape = model.input_shape
    if not isinstance(shape, tuple) or len(shape) != 4 or shape[3] not in (None, 3):
        raise UsageError(
            f"the model takes inputs of shape {shape}; images need (batch, height, width, 3): red, green and "
            "blue. Let a layer of the model make them what it needs."
        )
    return (shape[1] or fallback, shape[2] or fallback)
