"""Layers of a user's own, in a module that nothing but `--model userlayers:NAME` or a saved model imports."""

import tensorflow as tf

layers = tf.keras.layers


class Scale(layers.Layer):
    """Multiplies by weights, and by a factor that its configuration keeps."""

    def __init__(self, factor=1.0, **options):
        super().__init__(**options)
        self.factor = factor

    def build(self, input_shape):
        self.scale = self.add_weight(name="scale", shape=(input_shape[-1],), initializer="ones")

    def call(self, inputs):
        return inputs * self.scale * self.factor

    def get_config(self):
        return {**super().get_config(), "factor": self.factor}


@tf.keras.utils.register_keras_serializable("mine")
class Registered(Scale):
    """Registered under another name than its own."""


class Forgetful(Scale):
    """Its configuration has a key that it does not take."""

    def get_config(self):
        return {**super().get_config(), "forgotten": 1}


class Unsaved(Scale):
    """Cannot be saved."""

    def get_config(self):
        raise NotImplementedError("no configuration")


def halved(x):
    return x / 2


def _with(layer, num_classes):
    pixels = tf.keras.Input((32, 32, 3))
    features = layer(layers.Conv2D(4, 3, strides=2)(layers.Rescaling(1 / 255)(pixels)))
    return tf.keras.Model(pixels, layers.Dense(num_classes)(layers.GlobalAveragePooling2D()(features)))


def scaled(num_classes):
    return _with(Scale(2.0), num_classes)


def registered(num_classes):
    return _with(Registered(2.0), num_classes)


def forgetful(num_classes):
    return _with(Forgetful(2.0), num_classes)


def unsaved(num_classes):
    return _with(Unsaved(2.0), num_classes)


def by_function(num_classes):
    return _with(layers.Activation(halved), num_classes)


def of_a_local_class(num_classes):
    class Local(Scale):
        pass

    return _with(Local(2.0), num_classes)
