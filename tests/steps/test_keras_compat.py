"""The differences between the two Keras, with the installed one."""

import zipfile
from pathlib import Path

import numpy as np
import pytest

from builders import small_network
from elastictrainer.runs import resident
from elastictrainer.steps import optimizers
from elastictrainer.steps.keras_compat import fitting, layers, model_files, variables


def test_in_inference_mode_statistics_stay_and_weights_train(tf):
    parts = tf.keras.layers.Dense(3), tf.keras.layers.BatchNormalization()
    network = tf.keras.Sequential([tf.keras.Input((4,)), *parts])
    inputs = tf.keras.Input((4,))
    model = tf.keras.Model(inputs, layers.in_inference_mode(network, inputs))
    x = tf.random.normal((16, 4))
    before = [v.numpy().copy() for v in model.non_trainable_weights]
    with tf.GradientTape() as tape:
        trained = model(x, training=True)
        total = tf.reduce_sum(trained**2)
    np.testing.assert_allclose(trained, network(x, training=False), rtol=1e-6)
    for variable, value in zip(model.non_trainable_weights, before):
        np.testing.assert_array_equal(variable.numpy(), value)
    gradients = tape.gradient(total, variables.tf_variables(model.trainable_weights))
    assert len(gradients) == 4 and all(g is not None for g in gradients)
    plain = layers.for_inference(model, ())
    assert not any(isinstance(layer, layers.InferenceMode) for layer in plain.layers)
    np.testing.assert_allclose(plain(x), model(x), rtol=1e-6)


def shared_layer(tf):
    """A layer that is called twice, which Keras 2 marks in its config."""
    shared = tf.keras.layers.Dense(4, name="shared")
    inputs = tf.keras.Input((4,))
    return tf.keras.Model(inputs, tf.keras.layers.Dense(2)(shared(shared(inputs))))


@pytest.mark.parametrize("room", [True, False])  # Keras 3 writes another way where it finds little memory
@pytest.mark.parametrize("make, shape", [(small_network, (2, 8, 8, 3)), (shared_layer, (2, 4))])
def test_a_model_is_saved_as_keras_saves_it(tf, tmp_path, monkeypatch, make, shape, room):
    monkeypatch.setattr("keras.src.saving.saving_lib.is_memory_sufficient", lambda _: room, raising=False)
    model = make(tf)
    model.compile(optimizer="adam", loss="mse")
    model.fit(tf.random.normal(shape), tf.zeros((2, 1)), verbose=0)
    model.save(tmp_path / "keras.keras")
    model_files.save_model(model, tmp_path / "ours.keras", "a comment")
    with zipfile.ZipFile(tmp_path / "keras.keras") as keras, zipfile.ZipFile(tmp_path / "ours.keras") as ours:
        assert ours.namelist() == keras.namelist() and ours.comment == b"a comment"
        assert ours.read("config.json") == keras.read("config.json") and ours.testzip() is None
    loaded = tf.keras.models.load_model(tmp_path / "ours.keras")
    slots = (variables.tf_variables(optimizers.variables_of(each.optimizer)) for each in (loaded, model))
    for one, other in [*zip(loaded.weights, model.weights), *zip(*slots)]:
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["keras.keras", "ours.keras"]


def test_files_that_a_layer_keeps_are_saved_with_the_model(tf, tmp_path):
    words = tf.keras.layers.StringLookup()
    words.adapt(["one", "two", "two"])
    model = tf.keras.Sequential([tf.keras.Input((1,), dtype="string"), words])
    model_files.save_model(model, tmp_path / "model.keras")
    loaded = tf.keras.models.load_model(tmp_path / "model.keras")
    assert loaded(tf.constant([["one"], ["two"]])).numpy().tolist() == [[2], [1]]


def test_a_large_model_is_not_saved_by_way_of_memory(tf, tmp_path):
    inputs = tf.keras.Input((1,))
    model = tf.keras.Model(inputs, [tf.keras.layers.Dense(2_500_000)(inputs) for _ in range(10)])  # 200 MB
    before = resident.settled_bytes()
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here on
    except OSError:
        pytest.skip("this system does not tell the peak of resident memory")
    model_files.save_model(model, tmp_path / "model.keras")
    lines = Path("/proc/self/status").read_text().splitlines()
    assert next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) - before < 100e6


def test_a_missing_part_of_a_minibatch_is_none(tf):
    x = tf.ones(2)
    empty = tf.experimental.Optional.empty(tf.TensorSpec(()))
    assert fitting.without_optionals((x, None, empty)) == (x, None, None)
