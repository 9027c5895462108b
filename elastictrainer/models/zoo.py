"""The built-in models: pre-trained backbones with a new head. `create` makes these and the user's own."""

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Callable, Dict, Optional, Tuple

import tensorflow as tf

from elastictrainer.errors import UsageError
from elastictrainer.models import model_file, user_models
from elastictrainer.registry import HEAD_INIT, MODEL
from elastictrainer.steps.keras_compat import in_inference_mode, take

# Layers that change their input in training only.
AUGMENTATION = (tf.keras.layers.RandomFlip, tf.keras.layers.RandomRotation)
_DEMO_HINT = "To see the whole program at work without any download: bash scripts/demo.sh"


@dataclass(frozen=True)
class Architecture:
    """How to make one of the built-in models.

    Attributes:
        backbone: from input shape (H, W, C) and weights file (None: random weights) to a Keras model that
            gives features (batch, h, w, channels) or pooled features (batch, channels).
        preprocess: from raw pixels (batch, H, W, C) in 0..255 to the values that the backbone was trained on.
        image_size: default height and width, in pixels.
        weights_file: name of the file with the pre-trained weights.
        weights_home: folder in which the library that provides the weights keeps that file.
        download: fetches the file through that library if it is not there, and returns its path.
        channels: of the input.
        rotation: largest random rotation, in turns; 0 where the class depends on which way is up.
        flip: whether to mirror images at random; False where the class depends on left and right.
    """

    backbone: Callable[[Tuple[int, int, int], Optional[str]], tf.keras.Model]
    preprocess: Callable[[Any], Any]
    image_size: int
    weights_file: str
    weights_home: str
    download: Callable[[], str]
    channels: int = 3
    rotation: float = 0.2
    flip: bool = True


def _keras_backbone(name: str) -> Callable[[Tuple[int, int, int], Optional[str]], tf.keras.Model]:
    def make(input_shape: Tuple[int, int, int], weights: Optional[str]) -> tf.keras.Model:
        return getattr(tf.keras.applications, name)(
            include_top=False, weights=weights, input_shape=input_shape
        )

    return make


def _keras_download(url_folder: str, file: str) -> Callable[[], str]:
    base = "https://storage.googleapis.com/tensorflow/keras-applications/"
    return lambda: tf.keras.utils.get_file(file, base + url_folder + "/" + file, cache_subdir="models")


def _vit_backbone(input_shape: Tuple[int, int, int], weights: Optional[str]) -> tf.keras.Model:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # vit-keras imports TensorFlow Addons, which warns of its end of life
            from vit_keras import utils, vit
    except ImportError as error:
        raise UsageError(
            f"vit needs vit-keras, whose version for TensorFlow 2.15 needs TensorFlow Addons ({error}). "
            "Choose another --model."
        ) from None
    full = vit.vit_b16(image_size=input_shape[:2], pretrained=False, include_top=False, pretrained_top=False)
    if weights:
        utils.load_weights_numpy(full, weights, pretrained_top=False)
    # The features are the class token. The library takes it with a Lambda layer, which cannot be saved
    # safely.
    tokens = next(
        layer.output for layer in full.layers if layer.name.replace("/", "_") == "Transformer_encoder_norm"
    )
    return tf.keras.Model(full.input, take(tokens, 0, axis=1), name="vit_b16")


def _vit_download() -> str:
    file = "ViT-B_16_imagenet21k+imagenet2012.npz"
    url = "https://github.com/faustomorales/vit-keras/releases/download/dl/" + file
    return tf.keras.utils.get_file(file, url, cache_subdir="weights")


def _between_minus_one_and_one(pixels: Any) -> Any:
    return tf.keras.layers.Rescaling(1 / 127.5, offset=-1.0, name="preprocess")(pixels)


def _caffe(pixels: Any) -> Any:
    """Channels in the order blue, green, red, minus their means over ImageNet."""
    reversed_channels = take(pixels, [2, 1, 0], axis=-1)
    return tf.keras.layers.Rescaling(1.0, offset=[-103.939, -116.779, -123.68], name="preprocess")(
        reversed_channels
    )


def _demo_backbone(input_shape: Tuple[int, int, int], weights: Optional[str]) -> tf.keras.Model:
    from elastictrainer.models.demo_network import backbone

    return backbone(input_shape, weights)


def _demo_weights() -> str:
    from elastictrainer.models.demo_network import WEIGHTS

    return str(WEIGHTS)


_KERAS_HOME = "~/.keras/models"
_RESNET = "resnet50_weights_tf_dim_ordering_tf_kernels_notop.h5"
_VGG = "vgg16_weights_tf_dim_ordering_tf_kernels_notop.h5"
_MOBILENET = "mobilenet_v2_weights_tf_dim_ordering_tf_kernels_1.0_224_no_top.h5"

ARCHITECTURES: Dict[str, Architecture] = {
    "resnet50": Architecture(
        _keras_backbone("ResNet50"), _caffe, 224, _RESNET, _KERAS_HOME, _keras_download("resnet", _RESNET)
    ),
    "vgg16": Architecture(
        _keras_backbone("VGG16"), _caffe, 224, _VGG, _KERAS_HOME, _keras_download("vgg16", _VGG)
    ),
    "mobilenetv2": Architecture(
        _keras_backbone("MobileNetV2"),
        _between_minus_one_and_one,
        224,
        _MOBILENET,
        _KERAS_HOME,
        _keras_download("mobilenet_v2", _MOBILENET),
    ),
    "vit": Architecture(
        _vit_backbone,
        _between_minus_one_and_one,
        224,
        "ViT-B_16_imagenet21k+imagenet2012.npz",
        "~/.keras/weights",
        _vit_download,
    ),
    "demo": Architecture(
        _demo_backbone,
        _between_minus_one_and_one,
        32,
        "demo.weights.npz",
        "elastictrainer/assets",
        _demo_weights,
        rotation=0.0,
        flip=False,
    ),
}


def default_image_size(name: str) -> int:
    """Height and width in pixels that a built-in model is made for; 224 for the user's own."""
    return ARCHITECTURES[name].image_size if name in ARCHITECTURES else 224


def fetch(name: str) -> str:
    """The file of a built-in model's pre-trained weights, downloaded if need be; UsageError if that fails."""
    architecture = ARCHITECTURES[name]
    try:
        return architecture.download()
    except Exception as error:  # whatever the download library raises without a network
        raise UsageError(
            f"the pre-trained weights of {name} are not on this machine and could not be downloaded "
            f"({error}). Put the file {architecture.weights_file} into {architecture.weights_home}, "
            f"or pass --weights path/to/file; --weights none starts from random weights. {_DEMO_HINT}"
        ) from None


def create(
    name: str,
    classes: int,
    image_size: Optional[int] = None,
    weights: str = "imagenet",
    head_init: str = "zeros",
    rotation: Optional[float] = None,
    flip: Optional[bool] = None,
    trust: bool = False,
) -> tf.keras.Model:
    """A model from raw pixels (batch, H, W, 3) in 0..255 to logits (batch, classes).

    A built-in model consists of augmentation, preprocessing, backbone with frozen batch-norm statistics,
    global average pooling, dropout 0.2, and a dense head. Only built-in models use `weights`, `head_init`,
    `rotation` and `flip`.

    Args:
        name: a key of ARCHITECTURES; a path to a `.keras` file; or "package.module:function", which is called
            with those of the arguments `num_classes` and `input_shape` that it takes.
        classes: number of classes, the width of the head.
        image_size: height and width in pixels; None: the model's default.
        weights: "imagenet" (demo network: its own pre-training), "none" (random weights), or a file.
        head_init: "zeros" (the backbone gets no gradient before the head's first update) or "glorot" (as in
            the published code).
        rotation: largest random rotation in training, in turns; None: the model's default (0.2 as in the
            published code, 0 for the demo network).
        flip: random mirroring in training; None: the model's default.
        trust: a `.keras` file may run code, see `model_file.read`.

    Raises:
        UsageError: unknown name; a file that is missing, belongs to another model or needs trust; a model of
            the user's whose output is not logits (batch, classes).
    """
    MODEL.check(name)
    if name in ARCHITECTURES:
        HEAD_INIT.check(head_init)
        architecture = ARCHITECTURES[name]
        if rotation is not None:
            architecture = replace(architecture, rotation=rotation)
        if flip is not None:
            architecture = replace(architecture, flip=flip)
        size = image_size or architecture.image_size
        return _built_in(name, architecture, classes, size, weights, head_init)
    if name.endswith(".keras"):
        model = model_file.read(name, trust)
    else:
        model = user_models.from_function(name, classes, (image_size or default_image_size(name),) * 2 + (3,))
    user_models.require_logits(name, model, classes)
    return model


def _built_in(
    name: str, architecture: Architecture, classes: int, image_size: int, weights: str, head_init: str
) -> tf.keras.Model:
    shape = (image_size, image_size, architecture.channels)
    pixels = tf.keras.Input(shape, name="pixels")
    features = pixels
    if architecture.flip:
        features = tf.keras.layers.RandomFlip("horizontal")(features)
    if architecture.rotation:
        features = tf.keras.layers.RandomRotation(architecture.rotation)(features)
    features = architecture.preprocess(features)
    features = in_inference_mode(_backbone(name, architecture, shape, weights), features)
    if len(features.shape) == 4:
        features = tf.keras.layers.GlobalAveragePooling2D()(features)
    features = tf.keras.layers.Dropout(0.2)(features)
    init = {"zeros": "zeros", "glorot": "glorot_uniform"}[head_init]
    logits = tf.keras.layers.Dense(classes, kernel_initializer=init, name="head")(features)
    return tf.keras.Model(pixels, logits, name=name)


def _backbone(
    name: str, architecture: Architecture, shape: Tuple[int, int, int], weights: str
) -> tf.keras.Model:
    if weights == "none":
        file = None
    elif weights == "imagenet":
        file = fetch(name)
    else:
        file = weights
        if not Path(file).is_file():
            raise UsageError(
                f"there is no weights file {file}. {name} takes {architecture.weights_file} "
                f"(or 'imagenet' to download it, 'none' for random weights). {_DEMO_HINT}"
            )
    try:
        return architecture.backbone(shape, file)
    except UsageError:
        raise
    except (ValueError, OSError, KeyError) as error:
        if file is None:
            raise UsageError(f"{name} cannot be made for input shape {shape}: {error}") from None
        raise UsageError(
            f"{file} does not hold the weights of {name} without its top ({error}); expected: "
            f"{architecture.weights_file}."
        ) from None


def input_size(model: tf.keras.Model, fallback: int) -> Tuple[int, int]:
    """Height and width in pixels that the model takes; `fallback` for a dimension that it leaves open.

    Raises:
        UsageError: the model's input is not (batch, height, width, channels).
    """
    shape = model.input_shape
    if not isinstance(shape, tuple) or len(shape) != 4:
        raise UsageError(
            f"the model takes inputs of shape {shape}; images need (batch, height, width, channels)."
        )
    return (shape[1] or fallback, shape[2] or fallback)
