"""Every network of tf.keras.applications, with what it wants, as the library itself tells it."""

import functools
import sys
from importlib.metadata import version
from typing import Any, Callable, Dict, Optional, Tuple

import tensorflow as tf

from elastictrainer.errors import UsageError
from elastictrainer.models.architecture import Architecture, WeightsFile
from elastictrainer.models.preprocessing import infer_preprocessing
from elastictrainer.steps.keras_compat.model_files import application_helpers

_OPEN_SIZE = 224, 32  # of a network that names no size, MobileNetV3: what its weights are made for


def networks() -> Dict[str, str]:
    """Return the functions that this Keras has, by their name in lower case."""
    return {
        name.lower(): name
        for name, value in vars(tf.keras.applications).items()
        if callable(value) and not name.startswith("_")
    }


@functools.lru_cache(maxsize=None)
def architecture(name: str) -> Architecture:
    """Describe a network of `registry.KERAS_NETWORKS`; UsageError where this Keras does not have it."""
    names = networks()
    if name not in names:
        raise UsageError(
            f"--model {name}: Keras {version('keras')}, with TensorFlow {tf.__version__}, does not have "
            "it. Choose another, or train on the other stack (docs/stacks.md)."
        )
    function = getattr(tf.keras.applications, names[name])
    image_size, least_size = _sizes(function)
    return Architecture(
        backbone=functools.partial(_backbone, function),
        preprocess=infer_preprocessing(sys.modules[function.__module__].preprocess_input),
        image_size=image_size,
        weights=functools.partial(_weights, function, image_size),
        least_size=least_size,
    )


class _Seen(Exception):
    """The arguments of the first call of a helper; raised, because nothing more is needed."""


def _sizes(function: Callable[..., Any]) -> Tuple[int, int]:
    """Find default and smallest height and width: the network first checks the shape it is given."""

    def seen(input_shape: Any, default_size: int, min_size: int, *rest: Any, **others: Any) -> Any:
        raise _Seen(default_size, min_size)

    with application_helpers(obtain_input_shape=seen):
        try:
            function(include_top=False, weights=None, input_shape=(1, 1, 3))
        except _Seen as told:
            default, least = told.args
            return default, least
        except ValueError:  # too small, by a rule of its own
            pass
    return _OPEN_SIZE


def _weights(function: Callable[..., Any], size: int) -> WeightsFile:
    """Find the file that the network loads at its default size, by the download it asks Keras for."""

    def seen(*arguments: Any, **options: Any) -> Any:
        raise _Seen(arguments, options)

    with application_helpers(get_file=seen):
        try:
            function(include_top=False, weights="imagenet", input_shape=(size, size, 3))
        except _Seen as told:
            arguments, options = told.args
    name = arguments[0] if arguments else options["fname"]
    return WeightsFile(name, "~/.keras/models", lambda: tf.keras.utils.get_file(*arguments, **options))


def _backbone(
    function: Callable[..., Any], input_shape: Tuple[int, int, int], weights: Optional[str]
) -> tf.keras.Model:
    if weights is None:
        return function(include_top=False, weights=None, input_shape=input_shape)
    # Made as with "imagenet", so that a file gives the same network as the download does: EfficientNet, for
    # one, scales its inputs otherwise without.
    with application_helpers(get_file=lambda *arguments, **options: weights):
        return function(include_top=False, weights="imagenet", input_shape=input_shape)
