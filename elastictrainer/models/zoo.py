"""The networks: a registry of pre-trained backbones with a fresh head, and the user's own models."""

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Callable, Dict, Optional, Tuple

import tensorflow as tf

from elastictrainer.errors import UsageError
from elastictrainer.models import user_models
from elastictrainer.registry import HEAD_INIT, MODEL
from elastictrainer.steps.keras_compat import in_inference_mode, take

AUGMENTATION = (
    tf.keras.layers.RandomFlip,
    tf.keras.layers.RandomRotation,
)  # layers that do nothing outside training
_DEMO_HINT = "To see the whole program at work without any download: bash scripts/demo.sh"


@dataclass(frozen=True)
class Architecture:
    """How to make one of the registered networks.

    Attributes:
        backbone: (input shape (H, W, C), weights file or None) -> features model, pooled features model or None.
        preprocess: raw pixels in 0..255 -> what the backbone was trained on.
        image_size: default height and width.
        channels: of the input.
        weights_file: the file that holds the pre-trained weights.
        weights_home: where the library that owns the weights keeps it.
        download: fetches the file through that library and returns its path; None where there is nothing to fetch.
        rotation: the largest random rotation in turns; 0 for inputs that have an upright.
        flip: whether a mirrored image is still of its class.
    """

    backbone: Callable[[Tuple[int, int, int], Optional[str]], tf.keras.Model]
    preprocess: Callable[[Any], Any]
    image_size: int
    weights_file: str
    weights_home: str
    download: Optional[Callable[[], str]]
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
            )  # TensorFlow Addons, which vit-keras imports, says that it is end-of-life
            from vit_keras import utils, vit
    except ImportError as error:
        raise UsageError(
            f"vit needs vit-keras, whose version for TensorFlow 2.15 needs TensorFlow Addons ({error}). Choose another --model."
        ) from None
    full = vit.vit_b16(image_size=input_shape[:2], pretrained=False, include_top=False, pretrained_top=False)
    if weights:
        utils.load_weights_numpy(full, weights, pretrained_top=False)
    # The class token, by an op that can be saved; the library takes it with a Lambda layer, which cannot safely.
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
    """Blue, green, red, each less its mean over ImageNet."""
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
    """The height and width a registered model is made for; 224 for the user's own."""
    return ARCHITECTURES[name].image_size if name in ARCHITECTURES else 224


def create(
    name: str,
    classes: int,
    image_size: Optional[int] = None,
    weights: str = "imagenet",
    head_init: str = "zeros",
    rotation: Optional[float] = None,
    flip: Optional[bool] = None,
) -> tf.keras.Model:
    """A model from raw pixels (batch, H, W, 3) in 0..255 to logits (batch, classes).

    Registered models are: augmentation, preprocessing, backbone with frozen batch-norm statistics, global average
    pooling, dropout 0.2, dense head.

    Args:
        name: a key of ARCHITECTURES; a path to a `.keras` file; or "package.module:function", called with those of
            the arguments `num_classes` and `input_shape` it takes.
        classes: width of the head.
        image_size: height and width; None: the model's own.
        weights: "imagenet" (for the demo network: its own pre-training), "none", or a file. Registered models only.
        head_init: "zeros" (the backbone sees no gradient until the head has learned something) or "glorot" (as
            published). Registered models only.
        rotation: largest random rotation in training, in turns; None: the model's own (0.2, as published). Registered
            models only.
        flip: random mirroring in training; None: the model's own. Registered models only.

    Raises:
        UsageError: unknown name, a file that is missing or of another model, an output that is not (batch, classes).
    """
    MODEL.check(name)
    if name in ARCHITECTURES:
        HEAD_INIT.check(head_init)
        own = ARCHITECTURES[name]
        architecture = replace(
            own,
            rotation=own.rotation if rotation is None else rotation,
            flip=own.flip if flip is None else flip,
        )
        return _registered(name, architecture, classes, image_size or own.image_size, weights, head_init)
    if name.endswith(".keras"):
        model = user_models.from_file(name)
    else:
        model = user_models.from_function(name, classes, (image_size or 224,) * 2 + (3,))
    user_models.check(name, model, classes)
    return model


def _registered(
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
        try:
            file = architecture.download()
        except Exception as error:  # whatever the download library raises without a network
            raise UsageError(
                f"the pre-trained weights of {name} are not on this machine and could not be downloaded "
                f"({error}). Put the file {architecture.weights_file} into {architecture.weights_home}, or pass "
                f"--weights path/to/file; --weights none starts from random weights. {_DEMO_HINT}"
            ) from None
    else:
        file = weights
        if not Path(file).is_file():
            raise UsageError(
                f"there is no weights file {file}. {name} takes {architecture.weights_file} (or 'imagenet' to "
                f"download it, 'none' for random weights). {_DEMO_HINT}"
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
    """Height and width that the model takes; `fallback` for those it leaves open."""
    shape = model.input_shape
    if not isinstance(shape, tuple) or len(shape) != 4:
        raise UsageError(
            f"the model takes inputs of shape {shape}; images need (batch, height, width, channels)."
        )
    return (shape[1] or fallback, shape[2] or fallback)
