"""Networks whose steps are hard to cut, and steps of them."""

import numpy as np

BATCH = 4


def inputs_of(tf, model, seed=0):
    """A minibatch of random inputs of `model`."""
    random = np.random.default_rng(seed)
    made = []
    for given in tf.nest.flatten(getattr(model, "inputs", None) or [tf.zeros((1, 5))]):
        shape = (BATCH, *given.shape[1:])
        integers = str(getattr(given.dtype, "name", given.dtype)) == "int32"
        made.append(
            tf.constant(random.integers(0, 20, shape), tf.int32)
            if integers
            else tf.constant(random.normal(size=shape), tf.float32)
        )
    return made[0] if len(made) == 1 else made


def trained_step(tf, model, layers, loss=None, learning_rate=0.1):
    """A step of `model` that trains the tensors of `layers`, its optimizer and its metrics' variables."""
    from elastictrainer.steps import optimizers
    from elastictrainer.steps.compiled_step import CompiledStep
    from elastictrainer.steps.keras_compat.variables import name_of
    from elastictrainer.steps.objective import Objective, classification_loss

    optimizer = tf.keras.optimizers.SGD(learning_rate, momentum=0.9)
    optimizers.build(optimizer, model.trainable_variables)
    accuracy = tf.keras.metrics.SparseCategoricalAccuracy()
    chosen = [v for v in model.trainable_variables if set(name_of(v).split("/")) & set(layers)]
    assert chosen, f"{layers} of {[name_of(v) for v in model.trainable_variables]}"
    objective = Objective(model, loss or classification_loss())
    metrics = [accuracy] if loss is None else []
    return CompiledStep(objective, optimizer, chosen, metrics)


def everything(step):
    """All that a step may change."""
    from elastictrainer.steps import optimizers
    from elastictrainer.steps.keras_compat.variables import random_states, tf_variables

    model = step.objective.model
    metrics = [v for metric in step.metrics for v in metric.variables]
    return tf_variables(
        [*model.variables, *optimizers.variables_of(step.optimizer), *metrics, *random_states(model)]
    )


def values(variables):
    return [v.numpy().copy() for v in variables]


def assign(variables, before):
    for variable, value in zip(variables, before):
        variable.assign(value)


def traced_and_cut(step, spec):
    """The traced step, and its cut for minibatches of `spec`."""
    import tensorflow as tf

    from elastictrainer.cache.split import TracedStep
    from elastictrainer.steps.keras_compat.variables import random_states

    traced = TracedStep(step.in_graph(*spec), random_states(step.objective.model))
    return traced, traced.cut(tf.nest.flatten(spec[0])[0].shape[0])


def residual(tf):
    layers = tf.keras.layers
    inputs = tf.keras.Input((8, 8, 3))
    x = layers.Conv2D(4, 3, padding="same", name="c1")(inputs)
    y = layers.ReLU()(layers.Conv2D(4, 3, padding="same", name="c2")(x))
    x = layers.Add()([x, layers.Conv2D(4, 1, name="c3")(y)])
    x = layers.Conv2D(4, 3, strides=2, name="c4")(layers.ReLU()(x))
    return tf.keras.Model(inputs, layers.Dense(3, name="head")(layers.Flatten()(x)))


def augmented(tf):
    layers = tf.keras.layers
    inputs = tf.keras.Input((8, 8, 3))
    x = layers.RandomRotation(0.2)(layers.RandomFlip()(inputs))
    x = layers.ReLU()(layers.Conv2D(4, 3, name="c1")(x))
    x = layers.Dropout(0.3, name="inner_dropout")(x)
    x = layers.ReLU()(layers.Conv2D(4, 3, name="c2")(x))
    x = layers.Dropout(0.2, name="outer_dropout")(layers.GlobalAveragePooling2D()(x))
    return tf.keras.Model(inputs, layers.Dense(3, name="head")(x))


def updating_statistics(tf):
    layers = tf.keras.layers
    inputs = tf.keras.Input((8, 8, 3))
    x = layers.Conv2D(4, 3, name="c1")(inputs)
    x = layers.ReLU()(layers.BatchNormalization(name="norm")(x))
    x = layers.ReLU()(layers.Conv2D(4, 3, name="c2")(x))
    return tf.keras.Model(inputs, layers.Dense(3, name="head")(layers.Flatten()(x)))


def recurrent(tf):
    layers = tf.keras.layers
    inputs = tf.keras.Input((6,), dtype="int32")
    x = layers.Embedding(20, 5, name="words")(inputs)
    x = layers.GRU(4, return_sequences=True, name="inner", reset_after=False)(x)
    x = layers.GRU(4, name="outer", reset_after=False)(x)
    return tf.keras.Model(inputs, layers.Dense(3, name="head")(x))


def attention(tf):
    layers = tf.keras.layers
    inputs = tf.keras.Input((6, 8))
    x = layers.Dense(8, name="embedding")(inputs)
    for block in ("a", "b"):
        normed = layers.LayerNormalization(name=f"norm_{block}")(x)
        x = layers.Add()([x, layers.MultiHeadAttention(2, 4, name=f"attention_{block}")(normed, normed)])
    return tf.keras.Model(inputs, layers.Dense(3, name="head")(layers.GlobalAveragePooling1D()(x)))


def nested_and_subclassed(tf):
    layers = tf.keras.layers

    class Inner(layers.Layer):
        def __init__(self, **options):
            super().__init__(**options)
            self.kernel = self.add_weight(name="inner", shape=(4, 4), initializer="glorot_uniform")

        @tf.function
        def through(self, x):
            return tf.nn.relu(tf.matmul(x, tf.convert_to_tensor(self.kernel)))

        def call(self, x):
            return tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, self.through(a)), [0, x])[1]

    class Network(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.first = layers.Dense(4, name="first")
            inputs = tf.keras.Input((4,))
            self.middle = tf.keras.Model(inputs, layers.Dense(4, "relu", name="middle")(inputs))
            self.inner = Inner(name="inner")
            self.head = layers.Dense(3, name="head")

        def call(self, x, training=None):
            return self.head(self.inner(self.middle(self.first(x), training=training)))

    model = Network()
    model(tf.zeros((2, 5)))
    return model


def two_inputs_and_outputs(tf):
    layers = tf.keras.layers
    one, two = tf.keras.Input((4,), name="one"), tf.keras.Input((5,), name="two")
    x = layers.Concatenate()([layers.Dense(3, name="left")(one), layers.Dense(3, name="right")(two)])
    x = layers.Dense(4, "relu", name="both")(x)
    return tf.keras.Model([one, two], [layers.Dense(3, name="p")(x), layers.Dense(2, name="q")(x)])
