"""The demo network: a small residual network whose pre-trained weights come with the package."""

from pathlib import Path
from typing import Optional, Tuple

import numpy as np
import tensorflow as tf

WEIGHTS = Path(__file__).parent.parent / "assets" / "demo.weights.npz"
# Wide enough that a step takes tens of milliseconds, narrow enough that the weights are a small file.
WIDTHS = (32, 48, 96)
BLOCKS_PER_STAGE = (3, 2, 2)


def backbone(input_shape: Tuple[int, int, int], weights: Optional[str] = None) -> tf.keras.Model:
    """Build a model from pixels (batch, H, W, 3) in -1..1 to features (batch, H/4, W/4, 96).

    `weights` is a file of scripts/pretrain_demo.py, or None. ValueError where it is of another network.
    """
    inputs = tf.keras.Input(input_shape)
    x = _convolution(inputs, WIDTHS[0], 3, 1, "stem")
    for stage, (width, blocks) in enumerate(zip(WIDTHS, BLOCKS_PER_STAGE), start=1):
        for block in range(1, blocks + 1):
            x = _residual_block(x, width, 2 if stage > 1 and block == 1 else 1, f"stage{stage}_block{block}")
    model = tf.keras.Model(inputs, x, name="demo_backbone")
    if weights:
        load_weights(model, weights)
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


def load_weights(model: tf.keras.Model, path: str) -> None:
    """Load an `.npz` file of arrays in the order of `model.get_weights()`; ValueError where shapes differ."""
    with np.load(path, allow_pickle=False) as archive:
        arrays = [archive[f"arr_{k}"].astype(np.float32) for k in range(len(archive.files))]
    expected = [w.shape for w in model.get_weights()]
    if [a.shape for a in arrays] != expected:
        raise ValueError(f"{len(arrays)} arrays that do not fit the network's {len(expected)}")
    model.set_weights(arrays)
