"""Each export, loaded by its own runtime, says what the trained network says."""

import zipfile

import numpy as np
import pytest

from elastictrainer import UsageError

NAMES = ["auk", "bee-eater", "crane"]


@pytest.fixture(scope="module")
def model(tf):
    """The demo network with augmentation layers, and a head that tells images apart."""
    from elastictrainer.models import zoo

    made = zoo.create(
        "demo", 3, image_size=16, weights="imagenet", head_init="glorot", rotation=0.1, flip=True
    )
    return made


@pytest.fixture(scope="module")
def pixels():
    return np.random.default_rng(0).uniform(0, 255, (8, 16, 16, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def expected(tf, model, pixels):
    return tf.nn.softmax(model(pixels, training=False)).numpy()


def exported(model, format, path):
    from elastictrainer.models.export import export

    export(model, NAMES, format, path)
    return path


def test_saved_model(tf, model, pixels, expected, tmp_path):
    loaded = tf.saved_model.load(str(exported(model, "saved_model", tmp_path / "s")))
    said = loaded.signatures["serving_default"](tf.constant(pixels))
    np.testing.assert_allclose(said["probabilities"], expected, atol=1e-5)
    assert [name.decode() for name in said["class"].numpy()] == [NAMES[k] for k in expected.argmax(axis=1)]


def test_keras_file(tf, model, pixels, expected, tmp_path):
    loaded = tf.keras.models.load_model(exported(model, "keras", tmp_path / "m.keras"))
    said = loaded(pixels, training=False)
    np.testing.assert_allclose(said["probabilities"], expected, atol=1e-5)
    assert not [layer for layer in loaded.layers if "random" in layer.name]


def tflite(tf, path, pixels):
    interpreter = tf.lite.Interpreter(model_path=str(path))
    given, got = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
    interpreter.resize_tensor_input(given["index"], pixels.shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(given["index"], pixels)
    interpreter.invoke()
    return interpreter.get_tensor(got["index"])


def test_tflite_and_its_labels(tf, model, pixels, expected, tmp_path):
    path = exported(model, "tflite", tmp_path / "m.tflite")
    np.testing.assert_allclose(tflite(tf, path, pixels), expected, atol=1e-4)
    with zipfile.ZipFile(path) as archive:
        assert archive.read("labels.txt").decode().split() == NAMES


def test_int8_is_smaller_and_close(tf, model, pixels, expected, tmp_path):
    path = exported(model, "tflite-int8", tmp_path / "m.tflite")
    np.testing.assert_allclose(tflite(tf, path, pixels), expected, atol=0.05)
    assert path.stat().st_size < 0.5 * exported(model, "tflite", tmp_path / "f.tflite").stat().st_size


def test_bad_requests(model, tmp_path):
    with pytest.raises(UsageError, match="Did you mean 'tflite'"):
        exported(model, "tflight", tmp_path / "m")
    from elastictrainer.models.export import export

    with pytest.raises(UsageError, match="3 outputs, and there are 2 class names"):
        export(model, NAMES[:2], "tflite", tmp_path / "m")
    (tmp_path / "there").mkdir()
    with pytest.raises(UsageError, match="exists"):
        exported(model, "saved_model", tmp_path / "there")


@pytest.mark.slow
def test_a_run_is_exported_with_its_card_and_int8_keeps_the_accuracy(tf, tmp_path, monkeypatch, capsys):
    from elastictrainer.cli import export, train
    from elastictrainer.data import demo_digits

    monkeypatch.chdir(tmp_path)
    options = [
        "--model",
        "demo",
        "--dataset",
        "demo",
        "--batch-size",
        "16",
        "--learning-rate",
        "0.003",
        "--scheme",
        "full",
    ]
    assert train.main([*options, "--epochs", "1", "--output", "run", "--export", "tflite,keras"]) == 0
    assert export.main(["run", "--format", "tflite-int8", "--output", "out"]) == 0
    assert "written: out/model-int8.tflite" in capsys.readouterr().out
    images, labels = demo_digits.target("test")
    right = [
        (tflite(tf, path, images.astype(np.float32)).argmax(axis=1) == labels).mean()
        for path in ("run/export/model.tflite", "out/model-int8.tflite")
    ]
    trained = tf.keras.models.load_model("run/model.keras")
    assert right[0] == pytest.approx(
        (trained.predict(images.astype(np.float32), verbose=0).argmax(axis=1) == labels).mean()
    )
    assert abs(right[0] - right[1]) <= 0.01
    said = (tmp_path / "out" / "README.md").read_text()
    assert (
        "# demo for demo" in said and "model-int8.tflite" in said and "0, 1, 2, 3, 4, 5, 6, 7, 8, 9" in said
    )
    assert f"{100 * right[0]:.1f} % with these weights" in said
