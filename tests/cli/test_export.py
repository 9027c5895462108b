"""et-export: which formats of which run are written where."""

import pytest

from builders import small_network
from elastictrainer.cli import export, train
from run_builders import make_trained_run


@pytest.fixture
def run(tf, tmp_path, monkeypatch):
    """A finished run with a small model of two classes."""
    monkeypatch.chdir(tmp_path)
    return make_trained_run(tmp_path / "run", small_network(tf, classes=2), ["auk", "crane"], weights="none")


def test_formats_are_written_where_asked_and_a_model_card_beside_them(tf, run, capsys):
    assert export.main(["run", "--format", "keras", "--format", "saved_model", "--output", "out"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "written: out/deployed.keras",
        "written: out/saved_model",
        "written: out/README.md",
    ]
    assert tf.keras.models.load_model("out/deployed.keras").input_shape == (None, 8, 8, 3)


def test_the_default_is_tflite_in_the_run_folder_and_the_converter_is_not_heard(run, capfd):
    assert export.main(["run"]) == 0
    assert capfd.readouterr().err == ""
    assert {path.name for path in (run.path / "export").iterdir()} == {"model.tflite", "README.md"}


def test_a_wrong_request_is_status_2(run, tmp_path, capsys):
    (tmp_path / "elsewhere").mkdir()
    (run.path / "export").symlink_to(tmp_path / "elsewhere")
    assert export.main(["run"]) == 2
    assert "is a link" in capsys.readouterr().err and not list((tmp_path / "elsewhere").iterdir())
    (run.path / "export").unlink()
    assert export.main(["run", "--format", "tflight"]) == 2
    assert "'tflite'" in capsys.readouterr().err
    assert export.main(["nowhere"]) == 2
    assert "nowhere" in capsys.readouterr().err
    run.summary_path.unlink()
    assert export.main(["run"]) == 2
    assert "did not finish" in capsys.readouterr().err
    assert not (run.path / "export").exists()


def test_what_exists_is_replaced_only_if_asked_for(run, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "README.md").write_text("mine")
    keras = ["run", "--format", "keras", "--output", "out"]
    assert export.main(keras) == 0
    assert (tmp_path / "out" / "README.md").read_text() == "mine"
    (tmp_path / "out" / "deployed.keras").write_text("my own")
    assert export.main(keras) == 2
    assert "out/deployed.keras exists" in capsys.readouterr().err
    assert (tmp_path / "out" / "deployed.keras").read_text() == "my own"
    assert export.main(["run", "--format", "saved_model", "--output", "out"]) == 0
    (tmp_path / "out" / "saved_model" / "mine").write_text("mine")
    assert export.main(["run", "--format", "saved_model", "--output", "out"]) == 2
    assert (tmp_path / "out" / "saved_model" / "mine").exists()
    assert export.main([*keras, "--format", "saved_model", "--overwrite"]) == 0
    assert not (tmp_path / "out" / "saved_model" / "mine").exists()
    assert (tmp_path / "out" / "README.md").read_text() == "mine", "it is no model card"
    assert (tmp_path / "out" / "deployed.keras").stat().st_size > 1000


def test_resuming_a_finished_run_makes_the_exports_that_an_interrupt_left_out(run, capsys):
    run.write_config({**run.config(), "scheme": "full", "export": "keras"})
    assert train.main(["--resume", "run"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        f"written: run/export/{name}" for name in ("deployed.keras", "README.md")
    ]
    assert (run.export_path / "deployed.keras").exists()
    assert train.main(["--resume", "run"]) == 0
    assert "nothing to resume" in capsys.readouterr().out
