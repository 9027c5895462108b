"""SqueezeNet 1.1 for `--model squeezenet:classifier`, with ImageNet weights from the file that WEIGHTS names.

The file holds a kernel and a bias for each convolution, in groups of its name.
"""

import os

import tensorflow as tf

_FIRES = ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))
_POOLED_AFTER = (3, 5)  # numbers of the fire modules
_MEAN = (103.939, 116.779, 123.68)  # of blue, green, red


def classifier(input_shape, num_classes):
    layers = tf.keras.layers
    pixels = tf.keras.Input(input_shape)
    features = layers.RandomFlip("horizontal")(pixels)
    features = layers.Lambda(lambda x: x[..., ::-1] - tf.constant(_MEAN))(features)
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
    head = layers.Dense(num_classes, kernel_initializer="zeros", name="head")
    model = tf.keras.Model(pixels, head(features), name="squeezenet")
    _load(model, os.environ["WEIGHTS"])
    return model


def _load(model, path):
    import h5py

    found = {}
    with h5py.File(path) as file:
        file.visititems(
            lambda name, value: found.setdefault(name, value[()]) if hasattr(value, "shape") else None
        )
    for layer in model.layers:
        if isinstance(layer, tf.keras.layers.Conv2D):
            group = layer.name.replace("_", "/")
            layer.set_weights(
                [
                    next(v for name, v in found.items() if name.startswith(f"{group}/") and kind in name)
                    for kind in ("kernel", "bias")
                ]
            )
