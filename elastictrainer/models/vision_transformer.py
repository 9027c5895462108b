"""ViT-B/16, from the package vit-keras."""

import warnings
from typing import Optional, Tuple

import tensorflow as tf

from elastictrainer.errors import UsageError
from elastictrainer.steps.keras_compat.layers import take

WEIGHTS = "ViT-B_16_imagenet21k+imagenet2012.npz"
_URL = "https://github.com/faustomorales/vit-keras/releases/download/dl/" + WEIGHTS


def backbone(input_shape: Tuple[int, int, int], weights: Optional[str]) -> tf.keras.Model:
    """Build a model from pixels (batch, H, W, 3) in -1..1 to the class token's features (batch, 768).

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


def download() -> str:
    """Return the path of the pre-trained weights, fetched if they are not here. Raises what Keras raises."""
    return tf.keras.utils.get_file(WEIGHTS, _URL, cache_subdir="weights")
