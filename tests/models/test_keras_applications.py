"""Every network of keras.applications by its name: what the library tells of it, weights, training."""

import sys

import numpy as np
import pytest

from builders import step_of, tflite
from elastictrainer import UsageError
from elastictrainer.models import zoo
from elastictrainer.registry import KERAS_FAMILIES, KERAS_NETWORKS, MODEL
from elastictrainer.steps.keras_compat.version import KERAS_3

GONE = [name for name in KERAS_NETWORKS if name.startswith(("regnet", "resnetrs"))]  # with Keras 3
HERE = [name for name in KERAS_NETWORKS if not (KERAS_3 and name in GONE)]


def test_the_registry_has_the_networks_that_keras_has(tf):
    assert sorted(zoo.networks()) == sorted(HERE)
    assert len(set(MODEL.names)) == len(MODEL.names)


def test_a_network_that_this_keras_lacks_is_refused_naming_it(tf, monkeypatch):
    if not KERAS_3:
        few = {"vgg16": "VGG16"}
        monkeypatch.setattr(zoo, "networks", lambda: few)
    zoo._keras_architecture.cache_clear()
    with pytest.raises(UsageError, match=r"regnetx002: Keras [23]\.\d+\.\d+, "):
        zoo.create("regnetx002", 3, 32, "none")


@pytest.mark.parametrize("name", sorted(set(HERE) & {f + m[0] for f, m in KERAS_FAMILIES.items()}))
def test_preprocessing_and_sizes_are_the_librarys_own(tf, name):
    network = zoo.architecture(name)
    function = getattr(tf.keras.applications, zoo.networks()[name])
    module = sys.modules[function.__module__]
    pixels = np.random.default_rng(0).uniform(0, 255, (2, 5, 4, 3)).astype(np.float32)
    expected = module.preprocess_input(pixels.copy())
    np.testing.assert_allclose(network.preprocess(tf.constant(pixels)), expected, rtol=0, atol=2e-5)
    assert 32 <= network.least_size <= network.image_size <= 600


def test_sizes_that_are_known(tf):
    known = {"resnet50": (224, 32), "efficientnetb3": (300, 32), "inceptionv3": (299, 75)}
    known.update({"xception": (299, 71), "nasnetlarge": (331, 32), "efficientnetv2l": (480, 32)})
    known.update({"mobilenet": (224, 32), "mobilenetv3small": (224, 32)})
    found = {name: zoo.architecture(name) for name in known}
    assert {name: (each.image_size, each.least_size) for name, each in found.items()} == known


def test_the_weights_file_is_the_one_that_keras_would_download(tf):
    weights = zoo.architecture("mobilenetv2").weights()
    assert weights.name == "mobilenet_v2_weights_tf_dim_ordering_tf_kernels_1.0_224_no_top.h5"
    assert weights.home == "~/.keras/models"
    assert zoo.architecture("mobilenetv3small").weights().name.endswith("small_224_1.0_float_no_top_v2.h5")


@pytest.mark.parametrize(
    "name, otherwise",
    [
        pytest.param("efficientnetb0", True, marks=pytest.mark.slow),
        pytest.param("mobilenetv3small", False, marks=pytest.mark.long),
    ],
)
def test_a_weights_file_gives_the_network_that_the_download_gives(tf, tmp_path, name, otherwise):
    """EfficientNet is made otherwise with "imagenet" than with the same weights by path."""
    from elastictrainer.steps.keras_compat.model_files import application_helpers

    function = getattr(tf.keras.applications, zoo.networks()[name])
    file = tmp_path / "w.weights.h5"
    function(include_top=False, weights=None, input_shape=(32, 32, 3)).save_weights(str(file))
    with application_helpers(get_file=lambda *arguments, **options: str(file)):
        downloaded = function(include_top=False, weights="imagenet", input_shape=(32, 32, 3))
    ours = zoo.architecture(name).backbone((32, 32, 3), str(file))
    by_path = function(include_top=False, weights=str(file), input_shape=(32, 32, 3))
    pixels = tf.random.uniform((2, 32, 32, 3), 0, 255)
    np.testing.assert_array_equal(ours(pixels), downloaded(pixels))
    assert np.allclose(ours(pixels), by_path(pixels), atol=1e-6) != otherwise


@pytest.mark.parametrize(
    "name, size, message",
    [
        ("inceptionv3", 64, "inceptionv3 .*75x75.*--image-size"),
        ("mobilenetv3large", 16, "32x32.*16x16"),
        ("vit", 8, "16x16.*8x8"),
    ],
)
def test_pictures_too_small_for_a_network_are_refused(tf, name, size, message):
    with pytest.raises(UsageError, match=message):
        zoo.create(name, 3, size, "none")


FEW = [
    pytest.param("mobilenetv2", 32, marks=pytest.mark.slow),
    pytest.param("mobilenetv3small", 32, marks=pytest.mark.long),  # preprocesses inside
    pytest.param("convnexttiny", 32, marks=pytest.mark.long),  # layers of its own
]


@pytest.mark.parametrize("name, size", FEW)
def test_a_network_trains_and_is_the_same_after_saving_and_exporting(tf, tmp_path, name, size):
    from elastictrainer.models import user_models
    from elastictrainer.models.export import export
    from elastictrainer.steps import optimizers

    model = zoo.create(name, 3, size, "none", head_init="glorot", augment="standard")
    pixels, labels = tf.random.uniform((2, size, size, 3), 0, 255), tf.constant([0, 2])
    before = [v.numpy() for v in model.trainable_weights]
    step = step_of(model, optimizers.make("sgd", 1e-3))
    assert np.isfinite([float(step(pixels, labels)) for _ in range(2)]).all()
    assert all(gradient is not None for gradient in step.gradients)
    moved = [not np.array_equal(a, b.numpy()) for a, b in zip(before, model.trainable_weights)]
    assert np.mean(moved) > 0.9

    expected = model(pixels, training=False).numpy()
    model.save(tmp_path / "m.keras")
    loaded = user_models.read(tmp_path / "m.keras")
    np.testing.assert_allclose(loaded(pixels, training=False), expected, atol=1e-5)
    export(loaded, ["a", "b", "c"], "tflite", tmp_path / "m.tflite")
    said = tflite(tf, tmp_path / "m.tflite", pixels.numpy())
    np.testing.assert_allclose(said, tf.nn.softmax(expected), atol=1e-4)
