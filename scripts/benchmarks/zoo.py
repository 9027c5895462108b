"""Models to test the models of time and memory with: of the package, and others."""

from typing import Any, Callable, Dict, Tuple

import tensorflow as tf

layers = tf.keras.layers
Made = Tuple[Any, Callable, Tuple[Any, Any]]  # model, loss, minibatch
CLASSES = 200


def registered(name: str) -> Callable[[int], Made]:
    """One of the models of the package, with random weights, and augmentation as in the paper."""

    def make(batch: int) -> Made:
        from elastictrainer.models import zoo

        size = zoo.default_image_size(name)
        model = zoo.create(name, CLASSES, weights="none", augment="paper")
        return model, loss(), (tf.random.uniform((batch, size, size, 3), 0, 255), labels(batch, CLASSES))

    return make


def loss() -> Callable:
    return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def labels(batch: int, classes: int) -> tf.Tensor:
    return tf.random.uniform((batch,), 0, classes, tf.int64)


def recurrent_text(batch: int) -> Made:
    """Embedding, a GRU over the sequence, an LSTM on top; the loop runs as a while loop."""
    tokens = tf.keras.Input((80,), dtype=tf.int64)
    sequence = layers.GRU(128, return_sequences=True)(layers.Embedding(5000, 96)(tokens))
    model = tf.keras.Model(tokens, layers.Dense(4)(layers.LSTM(96)(sequence)))
    return model, loss(), (tf.random.uniform((batch * 8, 80), 0, 5000, tf.int64), labels(batch * 8, 4))


def token_transformer(batch: int) -> Made:
    """Four encoder blocks on token and position embeddings."""
    tokens = tf.keras.Input((128,), dtype=tf.int64)
    x = layers.Embedding(8000, 192)(tokens) + layers.Embedding(128, 192)(tf.range(128))
    for _ in range(4):
        attended = layers.MultiHeadAttention(4, 48)(x, x)
        x = layers.LayerNormalization()(x + layers.Dropout(0.1)(attended))
        fed = layers.Dense(192)(layers.Dense(768, activation="gelu")(x))
        x = layers.LayerNormalization()(x + fed)
    model = tf.keras.Model(tokens, layers.Dense(4)(layers.GlobalAveragePooling1D()(x)))
    return model, loss(), (tf.random.uniform((batch * 4, 128), 0, 8000, tf.int64), labels(batch * 4, 4))


class GraphConvolution(tf.keras.Model):
    """Three rounds of gathering the neighbours' features and adding them up by segment."""

    def __init__(self, width: int = 256, classes: int = 7):
        super().__init__()
        self.rounds = [layers.Dense(width, activation="relu") for _ in range(3)]
        self.head = layers.Dense(classes)

    def call(self, inputs, training=None):
        features, edges = inputs
        for dense in self.rounds:
            messages = tf.gather(features, edges[:, 0])
            features = dense(tf.math.unsorted_segment_sum(messages, edges[:, 1], tf.shape(features)[0]))
        return self.head(features)


def graph_network(batch: int) -> Made:
    nodes = 1500 * batch
    model = GraphConvolution()
    inputs = tf.random.normal((nodes, 128)), tf.random.uniform((6 * nodes, 2), 0, nodes, tf.int64)
    model(inputs)
    return model, loss(), (inputs, labels(nodes, 7))


class Shared(tf.keras.Model):
    """A convolution used three times, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = layers.Conv2D(64, 3, padding="same", activation="relu")
        self.again = layers.Conv2D(64, 3, padding="same", activation="relu")
        self.head = layers.Dense(10)

    def call(self, x, training=None):
        x = self.stem(x)
        for _ in range(3):
            x = self.again(x)
        return self.head(tf.reduce_mean(x, axis=(1, 2)))


def shared_weights(batch: int) -> Made:
    model = Shared()
    x = tf.random.normal((batch * 2, 64, 64, 3))
    model(x)
    return model, loss(), (x, labels(batch * 2, 10))


class Perceptron(tf.Module):
    """Four matrices, without Keras."""

    def __init__(self) -> None:
        super().__init__()
        widths = [1024, 2048, 2048, 1024, 10]
        self.weights = [
            tf.Variable(tf.random.normal(shape, 0, 0.02), name=f"w{k}")
            for k, shape in enumerate(zip(widths, widths[1:]))
        ]
        self.biases = [tf.Variable(tf.zeros(width), name=f"b{k}") for k, width in enumerate(widths[1:])]

    def __call__(self, x):
        for k, (weight, bias) in enumerate(zip(self.weights, self.biases)):
            x = x @ weight + bias
            x = tf.nn.relu(x) if k < 3 else x
        return x


def plain_module(batch: int) -> Made:
    return Perceptron(), loss(), (tf.random.normal((batch * 16, 1024)), labels(batch * 16, 10))


def joining(num_classes):
    """A network of 20 convolutions, each of which reads the outputs of several before it."""
    inputs = tf.keras.Input((128, 128, 3))
    x = layers.Conv2D(24, 3, strides=2, padding="same", activation="relu")(layers.Rescaling(1 / 255)(inputs))
    for _ in range(4):
        for _ in range(5):
            new = layers.Conv2D(12, 3, padding="same", activation="relu")(layers.BatchNormalization()(x))
            x = layers.Concatenate()([x, new])
        x = layers.AveragePooling2D()(layers.Conv2D(32, 1, activation="relu")(x))
    return tf.keras.Model(inputs, layers.Dense(num_classes)(layers.GlobalAveragePooling2D()(x)))


def gated(num_classes):
    """A network with swish, depthwise convolutions and gates over channels."""
    inputs = tf.keras.Input((128, 128, 3))
    x = layers.Conv2D(32, 3, strides=2, padding="same")(layers.Rescaling(1 / 255)(inputs))
    for width in (32, 32, 64, 64, 128, 128):
        y = layers.DepthwiseConv2D(3, padding="same")(
            layers.Activation("swish")(layers.LayerNormalization()(x))
        )
        gate = layers.Dense(y.shape[-1], activation="sigmoid")(layers.GlobalAveragePooling2D()(y))
        y = layers.Multiply()([y, layers.Reshape((1, 1, -1))(gate)])
        if width != x.shape[-1]:
            x, y = layers.MaxPooling2D()(layers.Conv2D(width, 1)(x)), layers.MaxPooling2D()(y)
        x = layers.Add()([x, layers.Conv2D(width, 1)(y)])
    return tf.keras.Model(inputs, layers.Dense(num_classes)(layers.GlobalAveragePooling2D()(x)))


_OF_THE_PACKAGE = "resnet50 vgg16 mobilenetv2 vit efficientnetb0 densenet121 nasnetmobile convnexttiny"
ZOO: Dict[str, Callable[[int], Made]] = {
    **{name: registered(name) for name in _OF_THE_PACKAGE.split()},
    "gru-lstm-text": recurrent_text,
    "token-transformer": token_transformer,
    "graph-convolution": graph_network,
    "shared-weights": shared_weights,
    "plain-module": plain_module,
}


def made(name: str, batch: int) -> Made:
    """The model of that name, its loss and a minibatch: of the zoo, or of et-train."""
    return ZOO.get(name, registered(name))(batch)
