"""A model as its user compiled it. Oracle: Keras' own training step."""

import numpy as np
import pytest

from builders import small_network
from elastictrainer import UsageError
from elastictrainer.steps import compiled, optimizers
from elastictrainer.steps.compiled_step import CompiledStep
from elastictrainer.steps.keras_compat.version import KERAS_3


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
    compiled.build(ours, x, (y, None))
    optimizers.build(ours.optimizer, ours.trainable_variables)
    step = CompiledStep(compiled.CompiledObjective(ours, None), ours.optimizer, ours.trainable_variables)
    loss = [float(step(x, (y, None))) for _ in range(3)]
    for a, b in zip(ours.trainable_weights, keras.trainable_weights):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6)
    assert loss[0] == pytest.approx(float(keras_loss[0]), rel=1e-5)


def test_sample_weights_weigh(tf):
    x, y = minibatch(tf)
    weights = tf.constant([1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    compiled.build(model, x, (y["size"], weights))
    objective = compiled.CompiledObjective(model, None)
    _, weighted = objective(x, (y["size"], weights), training=True)
    _, first_half = objective(x[:4], (y["size"][:4], None), training=True)
    assert float(weighted) == pytest.approx(0.5 * float(first_half), rel=1e-5)


def test_a_penalty_counts_in_training_only(tf):
    x, y = minibatch(tf)
    model = two_outputs(tf)
    compiled.build(model, x, (y, None))
    plain = compiled.CompiledObjective(model, None)
    with_penalty = compiled.CompiledObjective(model, None, penalty=lambda: tf.constant(10.0))
    for training, more in ((True, 10.0), (False, 0.0)):
        _, without = plain(x, (y, None), training=training)
        _, total = with_penalty(x, (y, None), training=training)
        assert float(total) == pytest.approx(float(without) + more, rel=1e-5)


def test_metrics_are_those_of_the_model_and_are_empty_after_build(tf):
    x, y = minibatch(tf)
    model = two_outputs(tf)
    compiled.build(model, x, (y, None))
    metrics = compiled.CompiledMetrics(model)
    outputs, _ = compiled.CompiledObjective(model, None)(x, (y, None), training=False)
    metrics.update_state((y, None), outputs)
    right = np.mean(np.argmax(outputs["kind"], axis=-1) == y["kind"].numpy())
    results = {name: float(value) for name, value in metrics.results().items()}
    assert results["kind_accuracy"] == pytest.approx(right) and "loss" in results


def test_a_compiled_model_is_accepted(tf):
    model = small_network(tf)
    model.compile(optimizer="sgd", loss="sparse_categorical_crossentropy")
    compiled.require_supported(model)


@pytest.mark.parametrize(
    "options, message",
    [
        (None, "not compiled: call compile"),
        ({"run_eagerly": True}, "run_eagerly"),
        ({"jit_compile": True}, "jit_compile=False"),
        ({"steps_per_execution": 4}, "steps_per_execution must be 1"),
        pytest.param(
            {"steps_per_execution": "auto"},
            "steps_per_execution must be 1",
            marks=pytest.mark.skipif(KERAS_3, reason="Keras 3 takes numbers only"),
        ),
    ],
)
def test_a_way_of_training_that_excludes_selection_is_refused(tf, options, message):
    model = small_network(tf)
    if options is not None:
        model.compile(optimizer="sgd", loss="mse", **options)
    with pytest.raises(UsageError, match=message):
        compiled.require_supported(model)


def test_a_model_with_its_own_train_step_is_refused(tf):
    class Custom(tf.keras.Model):
        def train_step(self, data):
            return {}

    with pytest.raises(UsageError, match="Custom .*train_step"):
        compiled.require_supported(Custom())


def test_loss_scaling_is_refused(tf):
    model = small_network(tf)
    scaled = tf.keras.mixed_precision.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1))
    model.compile(optimizer=scaled, loss="mse")
    with pytest.raises(UsageError, match="loss scaling"):
        compiled.require_supported(model)


@pytest.mark.skipif(KERAS_3, reason="Keras 3 has no older kind")
def test_an_older_optimizer_that_counts_steps_is_refused_where_tensors_pause(tf):
    model, older = small_network(tf), tf.keras.optimizers.legacy
    model.compile(older.Adam(), loss="mse")
    with pytest.raises(UsageError, match="Adam .*older"):
        compiled.require_supported(model)
    compiled.require_supported(model, pauses=False)
    for supported in (older.SGD(0.1, momentum=0.9), tf.keras.optimizers.Adam(1e-4)):
        model.compile(supported, loss="mse")
        compiled.require_supported(model)


@pytest.mark.skipif(not KERAS_3, reason="an optimizer of Keras 3")
def test_an_optimizer_that_needs_all_gradients_is_refused(tf):
    model, kinds = small_network(tf), tf.keras.optimizers
    model.compile(kinds.MultiOptimizer(kinds.OptimizerMap(kinds.Adam())), loss="mse")
    with pytest.raises(UsageError, match="MultiOptimizer"):
        compiled.require_supported(model, pauses=False)


@pytest.mark.skipif(not KERAS_3, reason="an option of Keras 3")
def test_a_factor_for_the_loss_is_refused(tf):
    model = small_network(tf)
    model.compile(optimizer=tf.keras.optimizers.SGD(0.1, loss_scale_factor=1024.0), loss="mse")
    with pytest.raises(UsageError, match="loss scaling"):
        compiled.require_supported(model)


def test_a_model_with_its_own_loss_is_trained_by_it_and_one_with_own_metrics_refused(tf):
    class OwnLoss(tf.keras.Model):
        def call(self, x):
            return x

        def compute_loss(self, x, y, y_pred, sample_weight):
            return 7.0 * tf.reduce_sum(y_pred)

    class OwnMetrics(OwnLoss):
        def compute_metrics(self, x, y, y_pred, sample_weight):
            return {}

    model = OwnLoss()
    model.compile(optimizer="sgd", loss="mse")
    compiled.require_supported(model)
    x = tf.ones((2, 1))
    _, loss = compiled.CompiledObjective(model, None)(x, (x, None), training=True)
    assert float(loss) == 14.0
    with pytest.raises(UsageError, match="OwnMetrics .*compute_metrics"):
        compiled.require_supported(OwnMetrics())
