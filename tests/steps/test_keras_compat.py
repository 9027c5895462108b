"""The differences between the two Keras, with the installed one."""

import numpy as np
import pytest

from builders import small_network
from elastictrainer.steps.keras_compat import fitting, inference, layers, model_files, variables


def test_a_name_has_the_layers_and_no_number_of_an_output(tf):
    model = small_network(tf)
    names = [variables.name_of(v) for v in model.get_layer("stem").weights]
    assert names == ["stem/kernel", "stem/bias"]


def test_layers_inside_are_listed_in_order_and_opened_if_asked(tf):
    inner = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(2, name="a")], name="inner")
    model = tf.keras.Sequential([tf.keras.Input((4,)), inner, tf.keras.layers.Dense(2, name="b")])
    assert [layer.name for layer in layers.layers_inside(model) if "input" not in layer.name] == [
        "inner",
        "b",
    ]
    opened = [layer.name for layer in layers.layers_inside(model, recursive=True)]
    assert {"inner", "a", "b"} <= set(opened)


def test_dropout_and_augmentation_keep_their_state_in_variables(tf):
    model = tf.keras.Sequential(
        [tf.keras.Input((8, 8, 3)), tf.keras.layers.RandomFlip(), tf.keras.layers.Dropout(0.5)]
    )
    states = variables.random_states(model)
    before = [state.numpy().copy() for state in states]
    model(tf.ones((2, 8, 8, 3)), training=True)
    assert len(states) == 2
    assert all(not np.array_equal(state.numpy(), value) for state, value in zip(states, before))


def test_in_inference_mode_statistics_stay_and_weights_train(tf):
    network = tf.keras.Sequential(
        [tf.keras.Input((4,)), tf.keras.layers.Dense(3), tf.keras.layers.BatchNormalization()]
    )
    inputs = tf.keras.Input((4,))
    model = tf.keras.Model(inputs, inference.in_inference_mode(network, inputs))
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
    plain = inference.for_inference(model, ())
    assert not any(isinstance(layer, inference.InferenceMode) for layer in plain.layers)
    np.testing.assert_allclose(plain(x), model(x), rtol=1e-6)


def test_symbolic_inputs_can_be_gathered_and_ranked(tf):
    inputs = tf.keras.Input((5,))
    model = tf.keras.Model(inputs, layers.take(inputs, [3, 0], axis=1))
    assert model(tf.constant([[1.0, 2.0, 3.0, 4.0, 5.0]])).numpy().tolist() == [[4.0, 1.0]]
    model = tf.keras.Model(inputs, layers.argmax(inputs))
    assert model(tf.constant([[1.0, 2.0, 9.0, 4.0, 5.0]])).numpy().tolist() == [2]


def shared_layer(tf):
    """A layer that is called twice, which Keras 2 marks in its config."""
    shared = tf.keras.layers.Dense(4, name="shared")
    inputs = tf.keras.Input((4,))
    return tf.keras.Model(inputs, tf.keras.layers.Dense(2)(shared(shared(inputs))))


@pytest.mark.parametrize("make, shape", [(small_network, (2, 8, 8, 3)), (shared_layer, (2, 4))])
def test_a_saved_model_loads_the_same_and_not_compiled(tf, tmp_path, make, shape):
    model = make(tf)
    model.compile(optimizer="sgd", loss="mse")
    model.save(tmp_path / "model.keras")
    loaded = model_files.load_model(tmp_path / "model.keras")
    x = tf.random.normal(shape)
    np.testing.assert_array_equal(loaded(x), model(x))
    assert fitting.is_compiled(model) and not fitting.is_compiled(loaded)
    assert fitting.steps_per_execution(model) == 1


def test_a_file_that_is_no_model_raises_what_keras_raises(tmp_path):
    (tmp_path / "model.keras").write_text("no archive")
    with pytest.raises((ValueError, OSError)):
        model_files.load_model(tmp_path / "model.keras")


def test_a_missing_part_of_a_minibatch_is_none(tf):
    x = tf.ones(2)
    empty = tf.experimental.Optional.empty(tf.TensorSpec(()))
    assert fitting.without_optionals((x, None, empty)) == (x, None, None)


def test_a_model_saved_for_serving_answers_as_before(tf, tmp_path):
    model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(2)])
    inference.save_for_serving(model, str(tmp_path / "served"))
    x = tf.random.normal((3, 4))
    (answer,) = tf.saved_model.load(str(tmp_path / "served")).signatures["serving_default"](x).values()
    np.testing.assert_allclose(answer, model(x), rtol=1e-6)
