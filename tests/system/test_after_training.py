"""From a validation part to a prediction, by the commands, on real photographs."""

import json
import shutil

import pytest

from elastictrainer.cli import evaluate, export, predict, train


@pytest.fixture
def photographs(cub100, tmp_path):
    """Three kinds of birds: twelve photographs of each to train on, four to validate by, four to test."""
    for kind in sorted((cub100 / "train").iterdir())[:3]:
        pictures = sorted((cub100 / "train" / kind.name).iterdir())[:16]
        tested = sorted((cub100 / "test" / kind.name).iterdir())[:4]
        for part, files in {"train": pictures[:12], "val": pictures[12:], "test": tested}.items():
            (tmp_path / "birds" / part / kind.name).mkdir(parents=True)
            for file in files:
                shutil.copy(file, tmp_path / "birds" / part / kind.name)
    return tmp_path / "birds"


@pytest.mark.slow
@pytest.mark.realdata
def test_the_kept_weights_are_tested_exported_and_used(tf, photographs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    options = ["--model", "usermodels:good", "--dataset", "birds", "--image-size", "48", "--scheme", "full"]
    options += ["--epochs", "4", "--learning-rate", "0.01", "--early-stopping", "1", "--output", "run"]
    assert train.main(options) == 0
    said = capsys.readouterr().out
    assert "36 training, 12 validation and 12 test" in said and "validation accuracy" in said
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert f"of epoch {summary['kept_epoch']} (" in said

    assert evaluate.main(["run"]) == 0
    measured = json.loads((tmp_path / "run/evaluation/summary.json").read_text())
    assert measured["accuracy"] == pytest.approx(summary["accuracy"]) and measured["images"] == 12
    assert evaluate.main(["run", "--part", "val", "--output", "by-val"]) == 0
    measured = json.loads((tmp_path / "by-val/summary.json").read_text())
    assert measured["accuracy"] == pytest.approx(summary["val_accuracy"])

    formats = {"keras": "deployed.keras", "saved_model": "saved_model", "tflite": "model.tflite"}
    assert export.main(["run", *(word for name in formats for word in ("--format", name))]) == 0
    card = (tmp_path / "run/export/README.md").read_text()
    assert f"of epoch {summary['kept_epoch']}, " in card
    capsys.readouterr()

    def probabilities(model):
        assert predict.main([model, "birds/test", "--json", "--top", "3"]) == 0
        lines = map(json.loads, capsys.readouterr().out.splitlines())
        return {
            (line["image"], one["class"]): one["probability"] for line in lines for one in line["classes"]
        }

    expected = probabilities("run")
    assert len(expected) == 36
    assert (tmp_path / "run/export/saved_model").is_dir()  # for other programs
    for name in ("deployed.keras", "model.tflite"):
        assert probabilities(f"run/export/{name}") == pytest.approx(expected, abs=1e-4), name
