"""Each export, loaded by its own runtime, gives what the trained model gives."""

import zipfile

import numpy as np
import pytest

from builders import tflite
from elastictrainer import UsageError
from elastictrainer.data.pictures import describe_preprocessing
from elastictrainer.models import predictor
from elastictrainer.models.export import deployed, export

NAMES = ["auk", "bee-eater", "crane"]


@pytest.fixture(scope="module")
def model(tf):
    """A small network with augmentation layers, and a head that tells images apart."""
    layers = tf.keras.layers
    parts = [
        *(layers.RandomFlip("horizontal"), layers.RandomRotation(0.1), layers.Rescaling(1 / 127.5, -1)),
        *(layers.Conv2D(64, 3), layers.BatchNormalization(), layers.ReLU(), layers.Conv2D(64, 3)),
        *(layers.GlobalMaxPooling2D(), layers.Dropout(0.2), layers.Dense(3)),
    ]
    return functional(tf, parts)


@pytest.fixture(scope="module")
def pixels():
    return np.random.default_rng(0).uniform(0, 255, (8, 16, 16, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def expected(tf, model, pixels):
    return tf.nn.softmax(model(pixels, training=False)).numpy()


def exported(model, format, path):
    """`path`, after the model was exported to it."""
    export(model, NAMES, format, path)
    return path


def answers(tf, format, path, pixels):
    """What a file of that format gives for (n, H, W, 3) pixels, read by its own runtime."""
    if format == "tflite":
        return {"probabilities": tflite(tf, path, pixels)}
    if format == "keras":
        return tf.keras.models.load_model(path)(pixels, training=False)
    return tf.saved_model.load(str(path)).signatures["serving_default"](tf.constant(pixels))


@pytest.fixture(scope="module")
def in_tflite(model, tmp_path_factory):
    return exported(model, "tflite", tmp_path_factory.mktemp("tflite") / "m.tflite")


def test_saved_model(tf, model, pixels, expected, tmp_path):
    said = answers(tf, "saved_model", exported(model, "saved_model", tmp_path / "s"), pixels)
    np.testing.assert_allclose(said["probabilities"], expected, atol=1e-5)
    assert [name.decode() for name in said["class"].numpy()] == [NAMES[k] for k in expected.argmax(axis=1)]


def test_keras_file(tf, model, pixels, expected, tmp_path):
    path = exported(model, "keras", tmp_path / "m.keras")
    np.testing.assert_allclose(answers(tf, "keras", path, pixels)["probabilities"], expected, atol=1e-5)
    assert not [layer for layer in tf.keras.models.load_model(path).layers if "random" in layer.name]


def test_tflite_and_its_labels(tf, in_tflite, pixels, expected):
    np.testing.assert_allclose(tflite(tf, in_tflite, pixels), expected, atol=1e-4)
    with zipfile.ZipFile(in_tflite) as archive:
        assert archive.read("labels.txt").decode().split() == NAMES
        assert archive.read("preprocessing.txt").decode().strip() == describe_preprocessing((16, 16))


@pytest.mark.slow
def test_int8_is_smaller_and_close(tf, model, in_tflite, pixels, expected, tmp_path):
    path = exported(model, "tflite-int8", tmp_path / "m.tflite")
    np.testing.assert_allclose(tflite(tf, path, pixels), expected, atol=0.05)
    assert path.stat().st_size < 0.5 * in_tflite.stat().st_size


@pytest.mark.slow
def test_full_int8_takes_pixels_and_gives_probabilities_as_bytes(tf, model, pixels, expected, tmp_path):
    path, images = tmp_path / "m.tflite", np.rint(pixels).astype(np.uint8)
    export(model, NAMES, "tflite-full-int8", path, sample=images)
    interpreter = tf.lite.Interpreter(model_path=str(path))
    given, got = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
    assert given["dtype"] is got["dtype"] is np.uint8
    assert given["shape_signature"].tolist() == [1, 16, 16, 3]
    assert given["quantization"] == (1, 0) and got["quantization"] == (1 / 256, 0), "as the model card says"
    assert all(tensor["dtype"] is not np.float32 for tensor in interpreter.get_tensor_details())
    # Each layer rounds its output to one of 256 levels, which is more than the weights alone lose.
    np.testing.assert_allclose(predictor.load(path)(pixels), expected, atol=0.1)
    with zipfile.ZipFile(path) as archive:
        assert archive.read("preprocessing.txt").decode().strip() == describe_preprocessing((16, 16), "uint8")


def test_full_int8_needs_images_to_calibrate_on(model, tmp_path):
    with pytest.raises(UsageError, match="needs training images"):
        exported(model, "tflite-full-int8", tmp_path / "m.tflite")
    assert not (tmp_path / "m.tflite").exists()


def test_what_cannot_be_exported_is_refused(model, tmp_path):
    with pytest.raises(UsageError, match="'tflite'"):
        exported(model, "tflight", tmp_path / "m")
    for format in ("tflite", "keras"):
        with pytest.raises(UsageError, match="3 outputs.* 2 "):
            export(model, NAMES[:2], format, tmp_path / "m")
    assert not list(tmp_path.iterdir())
    (tmp_path / "there").mkdir()
    with pytest.raises(UsageError, match="exists"):
        exported(model, "saved_model", tmp_path / "there")


def test_the_served_model_shares_its_weights_and_leaves_the_trained_one_alone(tf, model, pixels):
    before = model(pixels, training=False).numpy()
    serving = deployed(model, NAMES)
    assert {id(v) for v in serving.weights} <= {id(v) for v in model.weights}
    np.testing.assert_array_equal(model(pixels, training=False), before)


def functional(tf, parts):
    inputs = features = tf.keras.Input((16, 16, 3))
    for layer in parts:
        features = layer(features)
    return tf.keras.Model(inputs, features)


def sequential(tf, parts):
    return tf.keras.Sequential([tf.keras.Input((16, 16, 3)), *parts])


def augmented_late(keras):
    """Something comes before the augmentation, and is part of what is exported."""
    layers = keras.layers
    head = [layers.Conv2D(4, 3), layers.GlobalAveragePooling2D(), layers.Dense(3)]
    return [layers.Rescaling(1 / 255), layers.RandomFlip("horizontal"), *head]


def augmented_inside(keras):
    """The augmentation is inside another layer; it is not done in use."""
    layers = keras.layers
    augmentation = [layers.RandomFlip("horizontal"), layers.RandomContrast(0.9)]
    head = [layers.Conv2D(4, 3), layers.GlobalMaxPooling2D(), layers.Rescaling(1 / 255), layers.Dense(3)]
    return [keras.Sequential(augmentation), *head]


@pytest.mark.parametrize("format", ["keras", "tflite", "saved_model"])
@pytest.mark.parametrize(
    "make, parts",
    [
        (sequential, augmented_late),
        pytest.param(functional, augmented_late, marks=pytest.mark.long),
        (functional, augmented_inside),
    ],
)
def test_what_is_exported_gives_what_the_model_gives(tf, pixels, tmp_path, format, make, parts):
    model = make(tf, parts(tf.keras))
    expected = tf.nn.softmax(model(pixels, training=False)).numpy()
    path = exported(model, format, tmp_path / ("m" if format == "saved_model" else f"m.{format}"))
    np.testing.assert_allclose(answers(tf, format, path, pixels)["probabilities"], expected, atol=1e-4)
