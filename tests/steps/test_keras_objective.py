"""The loss and metrics that a model was compiled with. Oracle: Keras' own training step."""

import numpy as np
import pytest

from elastictrainer.steps import optimizers
from elastictrainer.steps.compiled_step import CompiledStep
from elastictrainer.steps.keras_objective import KerasMetrics, KerasObjective, make_variables


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


def test_a_step_makes_the_update_that_keras_makes(tf):
    x, y = minibatch(tf)
    ours, keras = two_outputs(tf), two_outputs(tf)
    keras_loss = [keras.train_on_batch(x, y, return_dict=True)["loss"] for _ in range(3)]
    make_variables(ours, x, (y, None))
    optimizers.build(ours.optimizer, ours.trainable_variables)
    step = CompiledStep(KerasObjective(ours), ours.optimizer, ours.trainable_variables)
    loss = [float(step(x, (y, None))) for _ in range(3)]
    for a, b in zip(ours.trainable_weights, keras.trainable_weights):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6)
    assert loss[0] == pytest.approx(float(keras_loss[0]), rel=1e-5)


def test_sample_weights_weigh(tf):
    x, y = minibatch(tf)
    weights = tf.constant([1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    make_variables(model, x, (y["size"], weights))
    objective = KerasObjective(model)
    _, weighted = objective(x, (y["size"], weights), training=True)
    _, first_half = objective(x[:4], (y["size"][:4], None), training=True)
    assert float(weighted) == pytest.approx(0.5 * float(first_half), rel=1e-5)


def test_a_penalty_counts_in_training_only(tf):
    x, y = minibatch(tf)
    model = two_outputs(tf)
    make_variables(model, x, (y, None))
    plain = KerasObjective(model)
    with_penalty = KerasObjective(model, penalty=lambda: tf.constant(10.0))
    for training, more in ((True, 10.0), (False, 0.0)):
        _, without = plain(x, (y, None), training=training)
        _, total = with_penalty(x, (y, None), training=training)
        assert float(total) == pytest.approx(float(without) + more, rel=1e-5)


def test_metrics_are_those_of_the_model_and_are_empty_after_build(tf):
    x, y = minibatch(tf)
    model = two_outputs(tf)
    make_variables(model, x, (y, None))
    metrics = KerasMetrics(model)
    outputs, _ = KerasObjective(model)(x, (y, None), training=False)
    metrics.update_state((y, None), outputs)
    right = np.mean(np.argmax(outputs["kind"], axis=-1) == y["kind"].numpy())
    results = {name: float(value) for name, value in metrics.results().items()}
    assert results["kind_accuracy"] == pytest.approx(right) and "loss" in results


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
