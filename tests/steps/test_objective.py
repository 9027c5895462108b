"""Objectives and losses by hand; those of a compiled model against Keras' own training step."""

import numpy as np
import pytest

from elastictrainer import Objective
from elastictrainer.steps import optimizers
from elastictrainer.steps.compiled_step import CompiledStep
from elastictrainer.steps.objective import KerasObjective, SmoothedCrossentropy, make_variables, training_loss


def line(tf):
    """A module: y = a x + b, with a = 2 and b = 0."""

    class Line(tf.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = tf.Variable(2.0), tf.Variable(0.0)

        def __call__(self, x):
            return self.a * x + self.b

    return Line()


def squared(y, outputs):
    return (outputs - y) ** 2


def test_gradients_of_a_plain_module_by_hand(tf):
    module = line(tf)
    unused = tf.Variable(1.0)
    outputs, loss, gradients = Objective(module, squared).gradients(3.0, 5.0, [module.a, module.b, unused])
    assert float(outputs) == 6.0 and float(loss) == 1.0
    assert [g if g is None else float(g) for g in gradients] == [6.0, 2.0, None]


def test_a_penalty_counts_in_training_only(tf):
    module = line(tf)
    objective = Objective(module, squared, penalty=lambda: 10.0 * module.a)
    assert float(objective(3.0, 5.0, training=True)[1]) == 21.0
    assert float(objective(3.0, 5.0, training=False)[1]) == 1.0
    assert float(objective.gradients(3.0, 5.0, [module.a])[2][0]) == 16.0


LOGITS = np.array([[2.0, -1.0, 0.5], [0.0, 3.0, 1.0], [1.0, 1.0, 1.0], [-2.0, 0.0, 4.0]], np.float32)
LABELS = np.array([0, 1, 2, 0])


def by_hand(smoothing, weights):
    log_p = LOGITS - np.log(np.exp(LOGITS).sum(axis=1, keepdims=True))
    targets = np.eye(3)[LABELS] * (1 - smoothing) + smoothing / 3
    return float(np.mean(np.asarray(weights)[LABELS] * -(targets * log_p).sum(axis=1)))


def test_training_loss_is_plain_cross_entropy_by_default(tf):
    assert type(training_loss()) is tf.keras.losses.SparseCategoricalCrossentropy
    assert float(training_loss()(LABELS, LOGITS)) == pytest.approx(by_hand(0.0, [1, 1, 1]), rel=1e-6)


@pytest.mark.parametrize("smoothing, weights", [(0.2, None), (0.0, [0.5, 2.0, 1.5]), (0.1, [3.0, 0.1, 1.0])])
@pytest.mark.parametrize(
    "labels", [LABELS, LABELS[:, None], LABELS.astype(np.float32)], ids=["1d", "2d", "float"]
)
def test_smoothed_crossentropy_by_hand(tf, smoothing, weights, labels):
    loss = training_loss(smoothing, weights)
    assert float(loss(labels, LOGITS)) == pytest.approx(by_hand(smoothing, weights or [1, 1, 1]), rel=1e-6)


def test_weights_count_as_keras_own_class_weights_do(tf):
    weights = {0: 0.5, 1: 2.0, 2: 1.5}
    inputs = tf.keras.Input((3,))
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(3, use_bias=False)(inputs))
    model.set_weights([np.eye(3, dtype=np.float32)])
    model.compile(tf.keras.optimizers.SGD(0.1), training_loss())
    model.train_on_batch(LOGITS, LABELS, class_weight=weights)
    keras, variable = model.get_weights()[0], tf.Variable(np.eye(3, dtype=np.float32))
    with tf.GradientTape() as tape:
        value = training_loss(class_weights=list(weights.values()))(LABELS, tf.matmul(LOGITS, variable))
    ours = variable - 0.1 * tape.gradient(value, variable)
    np.testing.assert_allclose(ours.numpy(), keras, rtol=1e-5)


def test_smoothed_crossentropy_is_made_again_from_its_config(tf):
    loss = SmoothedCrossentropy(0.1, [1.0, 2.0, 0.5])
    again = tf.keras.losses.deserialize(tf.keras.losses.serialize(loss))
    assert type(again) is SmoothedCrossentropy and again.get_config() == loss.get_config()


def two_outputs(tf):
    """A network with a class and a value as outputs, a regularised kernel, and a loss weight for each."""
    tf.keras.utils.set_random_seed(0)
    layers = tf.keras.layers
    inputs = tf.keras.Input((4,))
    shared = layers.Dense(5, activation="tanh", kernel_regularizer=tf.keras.regularizers.L2(0.01))(inputs)
    outputs = {"kind": layers.Dense(3, name="kind")(shared), "size": layers.Dense(1, name="size")(shared)}
    model = tf.keras.Model(inputs, outputs)
    model.compile(
        optimizer=tf.keras.optimizers.SGD(0.1, momentum=0.9),
        loss={"kind": tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), "size": "mse"},
        loss_weights={"kind": 1.0, "size": 0.5},
        metrics={"kind": "accuracy"},
    )
    return model


def minibatch(tf):
    random = np.random.default_rng(0)
    x = tf.constant(random.normal(size=(8, 4)), tf.float32)
    y = {
        "kind": tf.constant(random.integers(0, 3, 8)),
        "size": tf.constant(random.normal(size=(8, 1)), tf.float32),
    }
    return x, y


@pytest.mark.parametrize("weighted", [False, True])
def test_a_step_makes_the_update_that_keras_makes(tf, weighted):
    x, y = minibatch(tf)
    weights = dict.fromkeys(y, tf.constant([1.0, 1.0, 1.0, 0.5, 2.0, 0.0, 0.0, 0.0])) if weighted else None
    ours, keras = two_outputs(tf), two_outputs(tf)
    keras_loss = [keras.train_on_batch(x, y, weights, return_dict=True)["loss"] for _ in range(3)]
    make_variables(ours, x, (y, weights))
    optimizers.build(ours.optimizer, ours.trainable_variables)
    step = CompiledStep(KerasObjective(ours), ours.optimizer, ours.trainable_variables)
    loss = [float(step(x, (y, weights))) for _ in range(3)]
    for a, b in zip(ours.trainable_weights, keras.trainable_weights):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6)
    assert loss[0] == pytest.approx(float(keras_loss[0]), rel=1e-5)


def test_a_penalty_of_a_compiled_model_counts_in_training_only(tf):
    x, y = minibatch(tf)
    model = two_outputs(tf)
    make_variables(model, x, (y, None))
    plain = KerasObjective(model)
    with_penalty = KerasObjective(model, penalty=lambda: tf.constant(10.0))
    for training, more in ((True, 10.0), (False, 0.0)):
        _, without = plain(x, (y, None), training=training)
        _, total = with_penalty(x, (y, None), training=training)
        assert float(total) == pytest.approx(float(without) + more, rel=1e-5)


def test_variables_are_made_for_a_whole_minibatch_and_nothing_is_computed(tf):
    """A loss between examples, and a network with a fixed batch, hold for a whole minibatch alone. Without a
    graph Keras 3 holds the outputs of all layers, of a minibatch hundreds of megabytes.
    """
    ran = []

    class Reshaped(tf.keras.layers.Layer):
        def call(self, x):
            tf.py_function(lambda: ran.append(1), [], [])
            return tf.reshape(x, (8, 4))

    def between_pairs(labels, outputs):
        some, others = tf.split(outputs, 2)
        return tf.reduce_mean(tf.square(some - others))

    model = tf.keras.Sequential([Reshaped(), tf.keras.layers.Dense(2)])
    model.compile("sgd", between_pairs, metrics=[tf.keras.metrics.MeanSquaredError(name="error")])
    x, y = minibatch(tf)
    make_variables(model, x, (tf.zeros((8, 2)), None))
    assert len(model.trainable_variables) == 2 and not ran
    assert float(model.get_metrics_result()["error"]) == 0
