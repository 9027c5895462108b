"""The built-in models: shapes, preprocessing, weights, what is refused; model files as Keras reads them."""

import numpy as np
import pytest

from builders import small_network
from elastictrainer import UsageError
from elastictrainer.models import zoo

create = zoo.create


@pytest.mark.parametrize(
    "name, tensors",
    [
        ("demo", 53),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in (("mobilenetv2", 158), ("resnet50", 214), ("vgg16", 28), ("vit", 200))
        ),
    ],
)
def test_registered_model(tf, tmp_path, name, tensors):
    from elastictrainer.steps.keras_compat.model_files import load_model

    size = 64 if name != "vit" else 224
    model = create(name, 7, image_size=size, weights="none")
    assert model.output_shape == (None, 7)
    assert len(model.trainable_weights) == tensors
    # A zero head: logits are zero and the backbone gets no gradient yet.
    pixels = tf.random.uniform((2, size, size, 3), 0, 255)
    np.testing.assert_array_equal(model(pixels, training=False), np.zeros((2, 7)))
    moving = [v.numpy() for v in model.non_trainable_weights if "moving" in v.name]
    model(pixels, training=True)
    for a, b in zip(moving, [v.numpy() for v in model.non_trainable_weights if "moving" in v.name]):
        np.testing.assert_array_equal(a, b)
    model.save(tmp_path / "m.keras")
    loaded = load_model(tmp_path / "m.keras")
    assert len(loaded.trainable_weights) == tensors
    for a, b in zip(model.weights, loaded.weights):
        np.testing.assert_array_equal(a, b)


def test_head_init(tf):
    assert np.any(create("demo", 10, weights="none", head_init="glorot").get_layer("head").kernel.numpy())
    with pytest.raises(UsageError, match="zeros, glorot"):
        create("demo", 10, weights="none", head_init="ones")


def test_what_the_demo_network_has_learned_serves_the_demo_data(tf):
    from sklearn.linear_model import RidgeClassifier

    from elastictrainer.data import demo_digits

    (train, labels), (test, test_labels) = demo_digits.digits("train"), demo_digits.digits("test")
    scores = {}
    for weights in ("imagenet", "none"):
        model = create("demo", 10, weights=weights)
        features = tf.keras.Model(model.input, model.get_layer("head").input)
        probe = RidgeClassifier().fit(features.predict(train[:800], verbose=0), labels[:800])
        scores[weights] = probe.score(features.predict(test[:400], verbose=0), test_labels[:400])
    assert scores["imagenet"] > scores["none"] + 0.2
    convolutions = [v for v in model.trainable_weights if v.shape.rank == 4]
    assert len(convolutions) >= 12


def test_missing_weights_say_which_file_where_and_what_else(tf, monkeypatch, tmp_path):
    def no_network(*args, **kwargs):
        raise Exception("URL fetch failure: no network")

    monkeypatch.setattr(tf.keras.utils, "get_file", no_network)
    for name in ("mobilenetv2", "vit"):
        with pytest.raises(UsageError, match="scripts/demo.sh") as error:
            create(name, 5)
        assert zoo.architecture(name).weights().name in str(error.value)
    with pytest.raises(UsageError, match="no weights file"):
        create("resnet50", 5, weights=str(tmp_path / "none.h5"))


def test_weights_of_another_model_are_refused(tf, tmp_path):
    from elastictrainer.steps.keras_compat.version import KERAS_3

    demo = create("demo", 5, weights="none")
    demo.save_weights(str(tmp_path / "demo.weights.h5"))
    if KERAS_3:  # it no longer writes the older format
        (tmp_path / "demo.h5").write_bytes((tmp_path / "demo.weights.h5").read_bytes())
    else:
        demo.save_weights(str(tmp_path / "demo.h5"))
    for file in ("demo.h5", "demo.weights.h5"):
        with pytest.raises(UsageError, match="weights of mobilenetv2"):
            create("mobilenetv2", 5, image_size=64, weights=str(tmp_path / file))


def test_own_model_from_a_file_and_from_a_function(tf, tmp_path):
    small_network(tf, 4).save(tmp_path / "own.keras")
    assert create(str(tmp_path / "own.keras"), 4).output_shape == (None, 4)
    assert create("usermodels:good", 4, image_size=16).input_shape == (None, 16, 16, 3)
    assert create("usermodels:good", 4).input_shape == (None, 224, 224, 3)
    with pytest.raises(UsageError, match="9 classes"):
        create(str(tmp_path / "own.keras"), 9)


def test_input_size(tf):
    layers = tf.keras.layers

    def network(*shape):
        inputs = tf.keras.Input(shape)
        return tf.keras.Model(inputs, layers.Activation("relu")(inputs))

    assert zoo.input_size(network(12, 16, 3), fallback=5) == (12, 16)
    assert zoo.input_size(network(None, 16, 3), fallback=5) == (5, 16)
    for shape in ((7,), (8, 8, 1), (8, 8, 4)):
        with pytest.raises(UsageError, match=rf"{shape[-1]}\).*images need"):
            zoo.input_size(network(*shape), fallback=5)


def registered(tf):
    @tf.keras.utils.register_keras_serializable("test_models")
    class Scaled(tf.keras.layers.Layer):
        def build(self, shape):
            self.factor = self.add_weight(name="factor", shape=shape[-1:], initializer="ones")

        def call(self, x):
            return x * self.factor

    return tf.keras.Sequential([tf.keras.Input((5,)), Scaled(), tf.keras.layers.Dense(3)])


def nested(tf):
    inputs = tf.keras.Input((8, 8, 3))
    return tf.keras.Model(inputs, small_network(tf, 3)(inputs))


def with_words(tf):
    words = tf.keras.layers.TextVectorization(max_tokens=20, output_sequence_length=4)
    words.adapt(["one two three", "two three", "three"])
    return tf.keras.Sequential(
        [tf.keras.Input((1,), dtype=tf.string), words, tf.keras.layers.Embedding(20, 3)]
    )


def with_one_initializer_twice(tf):
    start = tf.keras.initializers.GlorotUniform(seed=1)
    dense = [tf.keras.layers.Dense(4, kernel_initializer=start) for _ in range(2)]
    return tf.keras.Sequential([tf.keras.Input((5,)), *dense])


def with_a_layer_used_twice(tf):
    """Keras 2 marks it in its config."""
    twice, inputs = tf.keras.layers.Dense(4), tf.keras.Input((4,))
    return tf.keras.Model(inputs, tf.keras.layers.Dense(2)(twice(twice(inputs))))


KINDS = small_network, registered, nested, with_words, with_one_initializer_twice, with_a_layer_used_twice


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_a_keras_file_is_read_as_keras_reads_it(tf, tmp_path, make):
    from elastictrainer.steps.keras_compat.model_files import load_model

    model = make(tf)
    if model.trainable_weights:
        model.compile("adam", "mse")
    for k, variable in enumerate(model.weights):
        if getattr(variable, "dtype", None) == tf.float32:  # a vocabulary is among the weights too
            variable.assign(tf.random.stateless_normal(variable.shape, [k, 1]))
    model.save(tmp_path / "m.keras")
    ours = load_model(tmp_path / "m.keras")
    theirs = tf.keras.models.load_model(tmp_path / "m.keras", compile=False)
    assert len(ours.weights) == len(theirs.weights) == len(model.weights)
    assert ours.get_config() == theirs.get_config()
    for a, b, c in zip(ours.weights, theirs.weights, model.weights):
        if getattr(a, "dtype", None) == tf.float32:
            np.testing.assert_array_equal(a, b)
            np.testing.assert_array_equal(a, c)
    x = tf.constant([["three two"]]) if make is with_words else tf.random.normal((2, *model.input_shape[1:]))
    np.testing.assert_array_equal(ours(x), theirs(x))
    assert getattr(ours, "optimizer", None) is None


def test_saved_weights_are_read_back_in_half_precision(tf, tmp_path):
    first, second = zoo.demo_backbone((16, 16, 3)), zoo.demo_backbone((16, 16, 3))
    path = str(tmp_path / "w.npz")
    np.savez_compressed(path, *[w.astype(np.float16) for w in first.get_weights()])
    zoo.load_arrays(second, path)
    for a, b in zip(first.get_weights(), second.get_weights()):
        assert b.dtype == np.float32
        np.testing.assert_array_equal(a.astype(np.float16), b.astype(np.float16))


@pytest.mark.parametrize("change", [lambda a: a[:-1], lambda a: [a[0][..., :-1], *a[1:]]])
def test_weights_of_another_network_are_refused(tf, tmp_path, change):
    model = zoo.demo_backbone((16, 16, 3))
    np.savez(tmp_path / "w.npz", *change(model.get_weights()))
    with pytest.raises(ValueError, match="do not fit"):
        zoo.load_arrays(model, str(tmp_path / "w.npz"))


def in_place(x):
    """Its argument is written over."""
    x *= [1.0, 2.0, 4.0]
    x -= [3.0, 0.0, 1.0]
    return x


@pytest.mark.parametrize(
    "function, order, scale, offset",
    [
        (lambda x: x, (0, 1, 2), (1.0,) * 3, (0.0,) * 3),
        (lambda x: x / 127.5 - 1, (0, 1, 2), (1 / 127.5,) * 3, (-1.0,) * 3),
        (lambda x: x[..., ::-1] - [9.5, 6.7, 3.6], (2, 1, 0), (1.0,) * 3, (-9.5, -6.7, -3.6)),
        (in_place, (0, 1, 2), (1.0, 2.0, 4.0), (-3.0, 0.0, -1.0)),
    ],
)
def test_what_is_probed_is_found(function, order, scale, offset):
    assert zoo.infer_preprocessing(function) == zoo.Preprocessing(order, scale, offset)


@pytest.mark.parametrize(
    "function",
    [np.sqrt, lambda x: x - x.mean(axis=-1, keepdims=True), lambda x: np.minimum(x, 200)],
    ids=["curved", "mixed", "clipped"],
)
def test_more_than_that_is_refused(function):
    with pytest.raises(ValueError, match="reorder, scale and shift"):
        zoo.infer_preprocessing(function)
