"""Augmentation by name: in training only, in float32, drawn by graph, absent from what is exported."""

import dataclasses

import numpy as np
import pytest

from elastictrainer import UsageError
from elastictrainer.models import augmentation, zoo
from elastictrainer.models.augmentation import AUGMENTATION, PRESETS, Augmentation
from elastictrainer.registry import AUGMENT

EVERYTHING = Augmentation(True, 0.1, 0.1, 0.1, 0.3, 0.2)


def test_every_name_stands_for_something_of_its_own():
    assert AUGMENT.names == tuple(PRESETS)
    assert len(set(PRESETS.values())) == len(PRESETS)
    assert PRESETS["paper"] == Augmentation(flip=True, rotation=0.2)  # of the published code


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Augmentation)])
def test_each_part_changes_pictures_in_training_alone_and_keeps_them_pictures(tf, field):
    (layer,) = augmentation.make_layers(Augmentation(**{field: getattr(EVERYTHING, field)}))
    assert isinstance(layer, AUGMENTATION)
    pixels = tf.random.uniform((64, 12, 12, 3), 0, 255)
    changed = np.array(layer(pixels, training=True))
    assert changed.shape == pixels.shape and changed.dtype == np.float32
    assert not np.array_equal(changed, pixels)
    assert not np.array_equal(changed, layer(pixels, training=True))
    assert -1e-3 <= changed.min() and changed.max() <= 255 + 1e-3
    np.testing.assert_array_equal(layer(pixels, training=False), pixels)


def test_the_models_own_augmentation_and_what_replaces_it(tf):
    def kinds(name="demo", **options):
        return augmentation.layer_kinds(zoo.create(name, 2, 32, weights="none", **options))

    assert kinds() == []
    assert kinds("mobilenetv3small") == ["RandomFlip"]
    assert kinds(augment="paper") == ["RandomFlip", "RandomRotation"]
    assert kinds(augment="paper", rotation=0.0) == ["RandomFlip"]
    assert kinds(augment="standard", flip=False) == ["RandomRotation", "RandomZoom"]
    assert kinds(flip=True, rotation=0.1) == ["RandomFlip", "RandomRotation"]
    assert len(kinds(augment="strong")) == 6
    with pytest.raises(UsageError, match="unknown augmentation 'storng'"):
        zoo.create("demo", 2, weights="none", augment="storng")


def test_rotation_is_the_largest_in_turns(tf):
    (flip, rotation) = augmentation.make_layers(PRESETS["paper"])
    assert rotation.get_config()["factor"] in (0.2, [-0.2, 0.2], (-0.2, 0.2))


FIRST, *FURTHER = (field.name for field in dataclasses.fields(Augmentation))


@pytest.mark.parametrize("field", [FIRST, *(pytest.param(name, marks=pytest.mark.slow) for name in FURTHER)])
def test_each_part_is_cached_with_the_frozen_work(tf, field):
    """A layer draws once for an example; the cut lies behind it, at the trained head."""
    from elastictrainer.cache.activation_cache import ActivationCache
    from elastictrainer.cache.forward_pass import ForwardPass
    from elastictrainer.cache.settings import CacheSettings
    from networks import trained_step

    tf.keras.utils.set_random_seed(1)
    layers = tf.keras.layers
    inputs = tf.keras.Input((8, 8, 3))
    (random,) = augmentation.make_layers(Augmentation(**{field: getattr(EVERYTHING, field)}))
    x = layers.Conv2D(4, 3, strides=2, name="c1")(random(inputs))
    x = layers.GlobalAveragePooling2D()(layers.Conv2D(4, 3, name="c2")(x))
    step = trained_step(tf, tf.keras.Model(inputs, layers.Dense(3, name="head")(x)), ["head"])
    minibatch = tf.random.uniform((4, 8, 8, 3), 0, 255), tf.constant([0, 1, 2, 0])
    spec = tf.nest.map_structure(lambda t: tf.TensorSpec((4, *t.shape[1:]), t.dtype), minibatch)
    forward = ForwardPass(step.objective, step.optimizer, minibatch)
    work = ActivationCache(step, minibatch, spec, 8, CacheSettings(dtype="float32"), forward)
    for _ in range(2):
        work.write(minibatch)
    first, second = (work.storage.read(rows) for rows in np.arange(8).reshape(2, 4))
    assert [tuple(cached.shape) for cached in first] == [(4, 4), (4,)]  # pooled features, and labels
    assert not np.array_equal(first[0], second[0])  # drawn for every example that is recorded
