"""SqueezeNet 1.1 for `--model squeezenet:classifier`; SQUEEZENET_WEIGHTS names a file of ImageNet weights.

The file holds a kernel and a bias for each convolution, in groups of its name.
"""

import os

import tensorflow as tf

from elastictrainer.models.zoo import Preprocessing

_FIRES = ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))
_POOLED_AFTER = (3, 5)  # numbers of the fire modules
_PREPROCESSING = Preprocessing(order=(2, 1, 0), offset=(-103.939, -116.779, -123.68))  # blue, green, red


def classifier(input_shape, num_classes):
    layers = tf.keras.layers
    pixels = tf.keras.Input(input_shape)
    features = layers.RandomFlip("horizontal")(pixels)
    features = _PREPROCESSING(features)
    features = layers.Conv2D(64, 3, strides=2, activation="relu", name="conv1")(features)
    features = layers.MaxPooling2D(3, 2)(features)
    for number, (narrow, wide) in enumerate(_FIRES, 2):
        squeezed = layers.Conv2D(narrow, 1, activation="relu", name=f"fire{number}_squeeze1x1")(features)
        one = layers.Conv2D(wide, 1, activation="relu", name=f"fire{number}_expand1x1")(squeezed)
        three = layers.Conv2D(wide, 3, padding="same", activation="relu", name=f"fire{number}_expand3x3")(
            squeezed
        )
        features = layers.Concatenate()([one, three])
        if number in _POOLED_AFTER:
            features = layers.MaxPooling2D(3, 2)(features)
    features = layers.Dropout(0.2)(layers.GlobalAveragePooling2D()(features))
    head = layers.Dense(num_classes, kernel_initializer="zeros", name="head", dtype="float32")
    model = tf.keras.Model(pixels, head(features), name="squeezenet")
    _load(model, os.environ["SQUEEZENET_WEIGHTS"])
    return model


def _load(model, path):
    import h5py

    arrays = {}

    def keep(name, value):  # what it returns would end the visit
        if isinstance(value, h5py.Dataset):
            arrays[name] = value[()]

    with h5py.File(path) as file:
        file.visititems(keep)
    for layer in model.layers:
        if isinstance(layer, tf.keras.layers.Conv2D):
            own = {name: array for name, array in arrays.items() if name.startswith(_group(layer))}
            layer.set_weights([next(own[n] for n in own if kind in n) for kind in ("kernel", "bias")])


def _group(layer):
    return layer.name.replace("_", "/") + "/"
