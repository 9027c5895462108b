"""A finished run is exported as its model is, with a model card."""

import numpy as np
import pytest

from builders import tflite
from elastictrainer import UsageError
from elastictrainer.data.pictures import describe_preprocessing
from elastictrainer.experiment.exporting import export_run
from log_lines import listen
from run_builders import make_run

NAMES = ["auk", "bee-eater", "crane"]


@pytest.fixture(scope="module")
def model(tf):
    layers = tf.keras.layers
    parts = layers.Rescaling(1 / 255), layers.Conv2D(8, 3), layers.GlobalMaxPooling2D(), layers.Dense(3)
    return tf.keras.Sequential([tf.keras.Input((16, 16, 3)), *parts])


@pytest.fixture
def run(tf, model, tmp_path):
    """A finished run with that model."""
    run = make_run(tmp_path / "run")
    config = {"model": "demo", "dataset": "d/birds", "weights": "w/demo.npz", "batch_size": 4, "seed": 0}
    run.write_config({**run.config(), **config})
    run.write_summary({**run.summary(), "epochs": 3, "loss": 0.5})
    run.write_environment({**run.environment(), "class_names": NAMES})
    model.save(run.model_path)
    return run


def test_a_run_is_exported_with_its_model_card(tf, run, model):
    written = export_run(run, ["tflite", "keras", "tflite"])
    folder = run.path / "export"
    assert written == [str(folder / name) for name in ("model.tflite", "deployed.keras", "README.md")]
    pixels = np.random.default_rng(0).uniform(0, 255, (8, 16, 16, 3)).astype(np.float32)
    expected = tf.nn.softmax(model(pixels, training=False))
    np.testing.assert_allclose(tflite(tf, folder / "model.tflite", pixels), expected, atol=1e-4)
    card = (folder / "README.md").read_text()
    assert (
        "# demo for birds" in card
        and "auk, bee-eater, crane" in card
        and "model.tflite, deployed.keras" in card
    )
    assert "80.0 % with these weights" in card and "scheme `elastic`, rho 0.5, 3 epochs" in card
    assert f"| Preprocessing | {describe_preprocessing((16, 16))} |" in card


def test_the_model_card_of_a_run_within_a_time_names_no_rho(run, tmp_path):
    run.write_config({**run.config(), "time": "10m"})
    export_run(run, [], tmp_path / "out")
    assert "scheme `elastic`, within 10m, 3 epochs" in (tmp_path / "out" / "README.md").read_text()


def test_a_run_without_class_names_has_numbers_instead(tf, run, tmp_path):
    run.write_environment({key: value for key, value in run.environment().items() if key != "class_names"})
    assert export_run(run, [], tmp_path / "out") == [str(tmp_path / "out" / "README.md")]
    assert "0, 1, 2" in (tmp_path / "out" / "README.md").read_text()


def test_a_run_that_cannot_be_exported_is_refused(run):
    with pytest.raises(UsageError, match="'onnx'"):
        export_run(run, ["onnx"])
    run.model_path.write_bytes(b"PK")
    with pytest.raises(UsageError, match="model.keras "):
        export_run(run, ["keras"])
    run.summary_path.unlink()
    with pytest.raises(UsageError, match="did not finish"):
        export_run(run, ["keras"])
    assert not (run.path / "export").exists()


def test_a_model_card_that_stays_is_told(run, tmp_path):
    said = listen()
    export_run(run, ["tflite"], tmp_path / "out")
    assert not said
    written = export_run(run, ["keras"], tmp_path / "out")
    assert written == [str(tmp_path / "out" / "deployed.keras")]
    assert "README.md" in said[0] and "--overwrite replaces it" in said[0]


def test_a_readme_of_the_users_own_stays_also_where_files_are_to_be_replaced(run, tmp_path):
    (tmp_path / "README.md").write_text("my project")
    for _ in range(2):
        said = listen()
        assert export_run(run, ["keras"], tmp_path, overwrite=True) == [str(tmp_path / "deployed.keras")]
        assert "it is no model card" in said[0]
    assert (tmp_path / "README.md").read_text() == "my project"
