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


def _with(layer):
    """A function that makes a network with the layer that `layer` makes."""

    def make(num_classes):
        pixels = tf.keras.Input((32, 32, 3))
        features = layer()(layers.Conv2D(4, 3, strides=2)(layers.Rescaling(1 / 255)(pixels)))
        return tf.keras.Model(pixels, layers.Dense(num_classes)(layers.GlobalAveragePooling2D()(features)))

    return make


scaled = _with(lambda: Scale(2.0))
registered = _with(lambda: Registered(2.0))
forgetful = _with(lambda: Forgetful(2.0))
unsaved = _with(lambda: Unsaved(2.0))
by_function = _with(lambda: layers.Activation(halved))


@_with
def of_a_local_class():
    class Local(Scale):
        pass

    return Local(2.0)
