"""A finished run is exported as its model is, with a model card."""

import numpy as np
import pytest

from builders import tflite
from elastictrainer import UsageError
from elastictrainer.data.pictures import describe_preprocessing
from elastictrainer.experiment.exporting import export_run
from log_lines import listen
from run_builders import make_trained_run

NAMES = ["auk", "bee-eater", "crane"]


@pytest.fixture(scope="module")
def model(tf):
    layers = tf.keras.layers
    parts = layers.Rescaling(1 / 255), layers.Conv2D(8, 3), layers.GlobalMaxPooling2D(), layers.Dense(3)
    return tf.keras.Sequential([tf.keras.Input((16, 16, 3)), *parts])


@pytest.fixture
def run(model, tmp_path):
    return make_trained_run(tmp_path / "run", model, NAMES)


def test_a_run_is_exported_with_its_model_card(tf, run, model):
    written = export_run(run, ["tflite", "keras", "tflite"])
    folder = run.path / "export"
    assert written == [str(folder / name) for name in ("model.tflite", "deployed.keras", "README.md")]
    pixels = np.random.default_rng(0).uniform(0, 255, (8, 16, 16, 3)).astype(np.float32)
    expected = tf.nn.softmax(model(pixels, training=False))
    np.testing.assert_allclose(tflite(tf, folder / "model.tflite", pixels), expected, atol=1e-4)
    card = (folder / "README.md").read_text()
    stated = "# demo for birds", "auk, bee-eater, crane", "model.tflite, deployed.keras"
    for words in (*stated, "80.0 % with these weights", "scheme `elastic`, rho 0.5, 3 epochs"):
        assert words in card
    assert f"| Preprocessing | {describe_preprocessing((16, 16))} |" in card


def test_a_run_within_a_time_names_no_rho_and_one_without_class_names_has_numbers(run, tmp_path):
    run.write_config({**run.config(), "time": "10m"})
    run.write_environment({key: value for key, value in run.environment().items() if key != "class_names"})
    assert export_run(run, [], tmp_path / "out") == [str(tmp_path / "out" / "README.md")]
    card = (tmp_path / "out" / "README.md").read_text()
    assert "scheme `elastic`, within 10m, 3 epochs" in card and "0, 1, 2" in card


def test_a_damaged_model_is_refused(run):
    run.model_path.write_bytes(b"PK")
    with pytest.raises(UsageError, match="model.keras "):
        export_run(run, ["keras"])
    assert not (run.path / "export").exists()


def test_a_model_card_that_stays_is_told(run, tmp_path):
    said = listen()
    export_run(run, ["tflite"], tmp_path / "out")
    assert not said
    written = export_run(run, ["keras"], tmp_path / "out")
    assert written == [str(tmp_path / "out" / "deployed.keras")]
    assert "README.md" in said[0] and "--overwrite replaces it" in said[0]
