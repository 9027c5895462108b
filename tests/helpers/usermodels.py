"""Models as users write them, for `--model usermodels:NAME`."""

import tensorflow as tf

layers = tf.keras.layers


def _network(input_shape, num_classes):
    pixels = tf.keras.Input(input_shape)
    features = layers.Conv2D(4, 3, strides=2, activation="relu", name="first")(
        layers.Rescaling(1 / 255)(pixels)
    )
    features = layers.GlobalAveragePooling2D()(layers.Conv2D(4, 3, name="second")(features))
    return tf.keras.Model(pixels, layers.Dense(num_classes, name="head")(features))


good = _network


def normalised(input_shape, num_classes, mean=0.5):
    """With a batch norm that knows the mean of its inputs, as that of a pre-trained network does."""
    pixels = tf.keras.Input(input_shape)
    norm = layers.BatchNormalization(name="norm")
    features = norm(layers.Conv2D(4, 3, strides=2, activation="relu", name="first")(pixels / 255))
    logits = layers.Dense(num_classes, name="head")(layers.GlobalAveragePooling2D()(features))
    norm.moving_mean.assign(tf.fill(norm.moving_mean.shape, mean))
    return tf.keras.Model(pixels, logits)


def normalised_untrained(input_shape, num_classes):
    """The same, which nobody has trained."""
    return normalised(input_shape, num_classes, mean=0.0)


def _ending(end):
    """A function that makes a network whose output is what `end` makes of its logits."""

    def make(input_shape, num_classes):
        model = _network(input_shape, num_classes)
        return tf.keras.Model(model.input, end(model.output))

    return make


def residual(input_shape, num_classes):
    """Deep and wide enough for its frozen part to be worth caching."""
    pixels = tf.keras.Input(input_shape)
    features = layers.Rescaling(1 / 255)(pixels)
    features = layers.Conv2D(48, 3, strides=2, activation="relu", name="stem")(features)
    for block in ("one", "two"):
        inner = features
        for name in (f"{block}_a", f"{block}_b"):
            inner = layers.Conv2D(48, 3, padding="same", activation="relu", name=name)(inner)
        features = layers.Add()([features, inner])
    head = layers.Dense(num_classes, name="head")
    return tf.keras.Model(pixels, head(layers.GlobalAveragePooling2D()(features)))


def with_float32_head(input_shape, num_classes):
    model = _network(input_shape, num_classes)
    head = layers.Dense(num_classes, dtype="float32", name="exact_head")
    return tf.keras.Model(model.input, head(model.layers[-2].output))


def frozen_below(input_shape, num_classes):
    model = _network(input_shape, num_classes)
    model.get_layer("first").trainable = False
    return model


def all_frozen(input_shape, num_classes):
    model = _network(input_shape, num_classes)
    model.trainable = False
    return model


def one_tensor(input_shape, num_classes):
    pixels = tf.keras.Input(input_shape)
    pooled = layers.GlobalAveragePooling2D()(layers.Rescaling(1 / 255)(pixels))
    return tf.keras.Model(pixels, layers.Dense(num_classes, use_bias=False)(pooled))


class _WithUnusedTensor(layers.Layer):
    def build(self, input_shape):
        self.unused = self.add_weight(name="unused", shape=(3,))

    def call(self, inputs):
        return inputs


unconnected = _ending(lambda logits: _WithUnusedTensor(name="idle")(logits))
softmax = _ending(lambda logits: layers.Softmax()(logits))
softmax_by_function = _ending(lambda x: layers.Dense(x.shape[-1], activation=tf.nn.softmax)(x))
sigmoid_by_function = _ending(lambda x: layers.Dense(x.shape[-1], activation=tf.nn.sigmoid)(x))
two_outputs = _ending(lambda logits: [logits, logits])


@_ending
def softmax_inside(logits):
    classes = logits.shape[-1]
    head = [layers.Dense(classes), layers.Softmax(), layers.Reshape((classes,))]
    return tf.keras.Sequential(head)(logits)


def too_wide(input_shape, num_classes):
    return _network(input_shape, num_classes + 1)


def a_map(input_shape, num_classes):
    pixels = tf.keras.Input(input_shape)
    return tf.keras.Model(pixels, layers.Conv2D(num_classes, 1)(pixels))


def not_built():
    return tf.keras.Sequential([layers.Dense(2)])


def no_model():
    return 42


def raises():
    raise ZeroDivisionError("the user's own mistake")


def needs_more(something):
    return something


def of_a_fixed_size(num_classes):
    return _network((12, 20, 3), num_classes)
