"""The built-in models: pre-trained backbones with a new head. `create` makes these and the user's own."""

import contextlib
import functools
import sys
import warnings
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

import numpy as np
import tensorflow as tf

from elastictrainer.errors import UsageError, reason
from elastictrainer.models import augmentation, user_models
from elastictrainer.registry import HEAD_INIT, KERAS_NETWORKS, MODEL
from elastictrainer.steps.keras_compat.layers import in_inference_mode, take
from elastictrainer.steps.keras_compat.model_files import application_helpers

_DEMO_HINT = "To see the whole program at work without any download: bash scripts/demo.sh"
_OWN_SIZE = 224  # pixels, for the user's own models
_OPEN_SIZE = 224, 32  # of a network that names no size, MobileNetV3: what its weights are made for
_VIT_WEIGHTS = "ViT-B_16_imagenet21k+imagenet2012.npz"
_VIT_URL = "https://github.com/faustomorales/vit-keras/releases/download/dl/" + _VIT_WEIGHTS
DEMO_WEIGHTS = Path(__file__).parent.parent / "assets" / "demo.weights.npz"
# Wide enough that a step of the demo network takes tens of milliseconds, narrow enough that the weights are a
# small file.
_DEMO_WIDTHS = (32, 48, 96)
_DEMO_BLOCKS = (3, 2, 2)
_RGB = (0, 1, 2)
Shape = Tuple[int, int, int]  # height, width, channels


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
    """The parts of one of the built-in models."""

    # From input shape (H, W, 3) and weights file (None: random weights) to a Keras model that gives features
    # (batch, h, w, channels) or pooled features (batch, channels).
    backbone: Callable[[Shape, Optional[str]], tf.keras.Model]
    preprocess: Callable[[Any], Any]  # raw pixels (batch, H, W, 3) in 0..255, as the backbone had them
    image_size: int  # default height and width, in pixels
    weights: Callable[[], WeightsFile]  # of its pre-training; may take as long as making the backbone
    least_size: int = 1  # smallest height and width, in pixels
    augment: str = "flip"  # its default augmentation, a name of `registry.AUGMENT`


def architecture(name: str) -> Architecture:
    """Describe a built-in model; UsageError where this Keras does not have it."""
    if name in KERAS_NETWORKS:
        return _keras_architecture(name)
    return {"vit": _vit, "demo": _demo}[name]()


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
        image_size: height and width in pixels; None: the model's default.
        weights: "imagenet" (demo network: its own pre-training), "none" (random weights), or a file.
        head_init: "zeros" (the backbone gets no gradient before the head's first update), "solve" (the same,
            until the run solves it), or "glorot" (as in the published code).
        rotation, flip, augment: see `augmentation.from_preset`; None: the model's default.
        trust: a `.keras` file may run code, see `user_models.read`.

    Raises:
        UsageError: unknown name; a file that is missing, belongs to another model or needs trust; an image
            size that the network cannot have; a model of the user's that does not give logits.
    """
    MODEL.check(name)
    if name not in MODEL.names:
        if name.endswith(".keras"):
            model = user_models.read(name, trust)
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


def _backbone(name: str, network: Architecture, shape: Shape, weights: str) -> tf.keras.Model:
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


@dataclass(frozen=True)
class Preprocessing:
    """An order of channels, then a scale and an offset for each.

    `order` has for each channel that the backbone takes that of the picture (red, green, blue).
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


_MINUS_ONE_TO_ONE = Preprocessing(scale=(1 / 127.5,) * 3, offset=(-1.0,) * 3)


def _plain(values: Tuple[float, ...]) -> Union[float, List[float]]:
    return values[0] if len(set(values)) == 1 else list(values)


def infer_preprocessing(function: Callable[[np.ndarray], np.ndarray]) -> Preprocessing:
    """Find how a `preprocess_input` orders, scales and shifts channels; ValueError if it does more."""

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


def networks() -> Dict[str, str]:
    """Return the functions that this Keras has, by their name in lower case."""
    return {
        name.lower(): name
        for name, value in vars(tf.keras.applications).items()
        if callable(value) and not name.startswith("_")
    }


@functools.lru_cache(maxsize=None)
def _keras_architecture(name: str) -> Architecture:
    """Describe a network of `registry.KERAS_NETWORKS`; UsageError where this Keras does not have it."""
    names = networks()
    if name not in names:
        raise UsageError(
            f"--model {name}: Keras {version('keras')}, with TensorFlow {tf.__version__}, does not have "
            "it. Choose another, or train on the other stack (docs/installation.md)."
        )
    function = getattr(tf.keras.applications, names[name])
    image_size, least_size = _sizes(function)
    return Architecture(
        backbone=functools.partial(_keras_backbone, function),
        preprocess=infer_preprocessing(sys.modules[function.__module__].preprocess_input),
        image_size=image_size,
        weights=functools.partial(_weights, function, image_size),
        least_size=least_size,
    )


class _Called(Exception):
    """The arguments of the first call of a helper; raised, because nothing more is needed."""


def _first_call(
    helper: str, function: Callable[..., Any], **options: Any
) -> Tuple[Tuple[Any, ...], Dict[str, Any]]:
    """Find with what arguments a network first calls one of `application_helpers`."""

    def called(*arguments: Any, **named: Any) -> Any:
        raise _Called(arguments, named)

    with application_helpers(**{helper: called}):
        try:
            function(include_top=False, **options)
        except _Called as told:
            return told.args
    return (), {}


def _sizes(function: Callable[..., Any]) -> Tuple[int, int]:
    """Find default and smallest height and width: the network first checks the shape it is given."""
    named: Dict[str, Any] = {}
    with contextlib.suppress(ValueError):  # too small, by a rule of its own
        _, named = _first_call("obtain_input_shape", function, weights=None, input_shape=(1, 1, 3))
    default, least = _OPEN_SIZE
    return named.get("default_size", default), named.get("min_size", least)


def _weights(function: Callable[..., Any], size: int) -> WeightsFile:
    """Find the file that the network loads at its default size, by the download it asks Keras for."""
    arguments, named = _first_call("get_file", function, weights="imagenet", input_shape=(size, size, 3))
    name = arguments[0] if arguments else named["fname"]
    return WeightsFile(name, "~/.keras/models", lambda: tf.keras.utils.get_file(*arguments, **named))


def _keras_backbone(
    function: Callable[..., Any], input_shape: Shape, weights: Optional[str]
) -> tf.keras.Model:
    if weights is None:
        return function(include_top=False, weights=None, input_shape=input_shape)
    # Made as with "imagenet", so that a file gives the same network as the download does: EfficientNet, for
    # one, scales its inputs otherwise without.
    with application_helpers(get_file=lambda *arguments, **options: weights):
        return function(include_top=False, weights="imagenet", input_shape=input_shape)


def _vit() -> Architecture:
    file = WeightsFile(
        _VIT_WEIGHTS,
        "~/.keras/weights",
        lambda: tf.keras.utils.get_file(_VIT_WEIGHTS, _VIT_URL, cache_subdir="weights"),
    )
    return Architecture(_vit_backbone, _MINUS_ONE_TO_ONE, image_size=224, weights=lambda: file, least_size=16)


def _vit_backbone(input_shape: Shape, weights: Optional[str]) -> tf.keras.Model:
    """Build ViT-B/16: from pixels (batch, H, W, 3) in -1..1 to the class token's features (batch, 768).

    `weights` is an .npz file of vit-keras, or None. UsageError where vit-keras cannot be imported.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the end of TensorFlow Addons' life
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


def _demo() -> Architecture:
    file = WeightsFile(DEMO_WEIGHTS.name, "elastictrainer/assets", lambda: str(DEMO_WEIGHTS))
    return Architecture(demo_backbone, _MINUS_ONE_TO_ONE, image_size=32, weights=lambda: file, augment="none")


def demo_backbone(input_shape: Shape, weights: Optional[str] = None) -> tf.keras.Model:
    """Build the demo network: from pixels (batch, H, W, 3) in -1..1 to features (batch, H/4, W/4, 96).

    `weights` is a file of scripts/pretrain_demo.py (in commit 7dc2fe8), or None. ValueError where it is of
    another network.
    """
    inputs = tf.keras.Input(input_shape)
    x = _convolution(inputs, _DEMO_WIDTHS[0], 3, 1, "stem")
    for stage, (width, blocks) in enumerate(zip(_DEMO_WIDTHS, _DEMO_BLOCKS), start=1):
        for block in range(1, blocks + 1):
            x = _residual_block(x, width, 2 if stage > 1 and block == 1 else 1, f"stage{stage}_block{block}")
    model = tf.keras.Model(inputs, x, name="demo_backbone")
    if weights:
        load_arrays(model, weights)
    return model


def _convolution(x, width: int, kernel: int, stride: int, name: str, relu: bool = True):
    x = tf.keras.layers.Conv2D(width, kernel, stride, padding="same", use_bias=False, name=name + "_conv")(x)
    x = tf.keras.layers.BatchNormalization(momentum=0.9, name=name + "_bn")(x)
    return tf.keras.layers.ReLU(name=name + "_relu")(x) if relu else x


def _residual_block(x, width: int, stride: int, name: str):
    shortcut = x
    if stride != 1 or x.shape[-1] != width:
        shortcut = _convolution(x, width, 1, stride, name + "_shortcut", relu=False)
    x = _convolution(x, width, 3, stride, name + "_1")
    x = _convolution(x, width, 3, 1, name + "_2", relu=False)
    return tf.keras.layers.ReLU(name=name + "_out")(tf.keras.layers.Add(name=name + "_add")([shortcut, x]))


def load_arrays(model: tf.keras.Model, path: str) -> None:
    """Load an `.npz` file of arrays in the order of `model.get_weights()`; ValueError where shapes differ."""
    with np.load(path, allow_pickle=False) as archive:
        arrays = [archive[f"arr_{k}"].astype(np.float32) for k in range(len(archive.files))]
    expected = [w.shape for w in model.get_weights()]
    if [a.shape for a in arrays] != expected:
        raise ValueError(f"{len(arrays)} arrays that do not fit the network's {len(expected)}")
    model.set_weights(arrays)
