"""An earlier run's model for the same classes, for others, and for others that cannot be."""

import numpy as np
import pytest

from elastictrainer import UsageError
from elastictrainer.models import zoo
from elastictrainer.models.warm_start import model_of
from elastictrainer.runs.run_folder import RunFolder

CLASSES = ["black", "grey", "white"]


@pytest.fixture(scope="module")
def run(tf, tmp_path_factory):
    """A finished run whose model has learned something about three classes: its head is random, not zero."""
    run = RunFolder(tmp_path_factory.mktemp("earlier"))
    zoo.create("demo", 3, image_size=24, weights="none", head_init="glorot").save(run.model_path)
    run.write_environment({"class_names": CLASSES})
    return run


@pytest.fixture(scope="module")
def pixels():
    return np.random.default_rng(0).uniform(0, 255, (3, 24, 24, 3)).astype(np.float32)


def test_the_same_classes_keep_the_whole_model(tf, run, pixels):
    expected = tf.keras.models.load_model(run.model_path)(pixels, training=False)
    np.testing.assert_array_equal(model_of(run, CLASSES)(pixels, training=False), expected)


def test_shared_classes_keep_their_weights_and_new_ones_start_from_zero(tf, run, pixels):
    model, old = model_of(run, ["green", "white", "black"]), tf.keras.models.load_model(run.model_path)
    logits, old_logits = (m(pixels, training=False).numpy() for m in (model, old))
    np.testing.assert_allclose(logits[:, 1:], old_logits[:, [2, 0]], rtol=1e-5)
    assert np.any(old_logits) and not np.any(logits[:, 0])
    assert len(model.trainable_weights) == len(old.trainable_weights)


def test_the_same_classes_in_another_order_keep_their_weights(tf, run, pixels):
    logits = model_of(run, CLASSES[::-1])(pixels, training=False).numpy()
    old_logits = model_of(run, CLASSES)(pixels, training=False).numpy()
    np.testing.assert_allclose(logits, old_logits[:, ::-1], rtol=1e-5)


def test_the_head_of_a_sequential_model_is_replaced_too_and_may_lack_a_bias(tf, tmp_path):
    run = RunFolder(tmp_path)
    network = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(2, use_bias=False)])
    network.save(run.model_path)
    run.write_environment({"class_names": ["a", "b"]})
    x = np.ones((1, 4), np.float32)
    logits = model_of(run, ["c", "b"])(x).numpy()
    assert logits[0, 0] == 0 and logits[0, 1] == pytest.approx(network(x).numpy()[0, 1])


def test_a_run_without_a_model_is_refused(tmp_path):
    with pytest.raises(UsageError, match="has no model.keras"):
        model_of(RunFolder(tmp_path), CLASSES)


def test_a_model_that_does_not_end_in_a_dense_layer_cannot_have_other_classes(tf, tmp_path):
    layers = tf.keras.layers
    inputs = tf.keras.Input((4, 4, 3))
    folder = tmp_path / "run"
    folder.mkdir()
    run = RunFolder(folder)
    tf.keras.Model(inputs, layers.GlobalAveragePooling2D()(layers.Conv2D(3, 1)(inputs))).save(run.model_path)
    run.write_environment({"class_names": ["a", "b", "c"]})
    assert model_of(run, ["a", "b", "c"]).output_shape == (None, 3)
    with pytest.raises(UsageError, match="dense layer"):
        model_of(run, ["a", "b"])
