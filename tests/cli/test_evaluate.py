"""et-evaluate: what is printed and written, and what is refused."""

import csv
import json

import pytest
from PIL import Image

from elastictrainer.cli import evaluate
from elastictrainer.runs import ownership
from run_builders import make_run_on_brightness


@pytest.fixture
def run(tf, tmp_path, image_folder, monkeypatch):
    """A run on two classes, told apart by a model; two test images of the light class are not light."""
    config = {"scheme": "full", "dataset": "images", "model": "usermodels:good"}
    run = make_run_on_brightness(tf, tmp_path / "run", **config)
    for k in (1, 2):
        Image.new("RGB", (9, 9), (100 * k, 100, 100)).save(image_folder / "test" / "light" / f"{k}.png")
    monkeypatch.chdir(tmp_path)
    return run


def rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_runs_own_test_images(run, capsys):
    assert evaluate.main(["run"]) == 0
    said = capsys.readouterr().out.splitlines()
    folder = run.path / "evaluation"
    summary = json.loads((folder / "summary.json").read_text())
    assert said[0].startswith("run/model.keras on 8 ")
    assert said[1].startswith(f"accuracy {100 * summary['accuracy']:.2f} %, F1 ")
    predictions = rows(folder / "predictions.csv")
    wrong = [row for row in predictions if row["class"] != row["predicted"]]
    assert len(predictions) == 8 and 0 < len(wrong) < 8, "the test needs both"
    assert summary["accuracy"] == pytest.approx(1 - len(wrong) / 8)
    assert [row["class"] for row in rows(folder / "classes.csv")] == ["dark", "light"]
    assert rows(folder / "confusion.csv")[1] == {
        "class": "light",
        "dark": str(len(wrong)),
        "light": str(4 - len(wrong)),
    }
    assert said[3].endswith(f"light for dark ({len(wrong)})")
    assert {path.name for path in folder.iterdir()} == set(ownership.EVALUATION)
    assert said[-1].startswith(f"written into {folder}".replace(str(run.path), "run"))


def test_nothing_is_replaced_unasked(run, capsys):
    (run.path / "evaluation").mkdir()
    for name in ("classes.csv", "notes.txt"):
        (run.path / "evaluation" / name).write_text("mine")
    assert evaluate.main(["run"]) == 2
    assert "classes.csv exists" in capsys.readouterr().err
    assert {path.name for path in (run.path / "evaluation").iterdir()} == {"classes.csv", "notes.txt"}
    assert evaluate.main(["run", "--overwrite"]) == 0
    assert (run.path / "evaluation" / "notes.txt").read_text() == "mine"
    assert len(rows(run.path / "evaluation" / "classes.csv")) == 2


def test_a_model_alone_on_other_images_without_a_mistake(run, capsys, image_folder):
    for image in (image_folder / "train" / "light").iterdir():
        image.unlink()
    (image_folder / "train" / "light").rmdir()
    (image_folder / "train" / "dim").mkdir()
    (image_folder / "train" / "dark" / "0.png").rename(image_folder / "train" / "dim" / "0.png")
    assert evaluate.main(["run/model.keras", "--dataset", "images/train"]) == 2
    assert "dim" in capsys.readouterr().err
    (image_folder / "train" / "dim").rename(image_folder / "train" / "light")
    assert evaluate.main(["run/model.keras", "--dataset", "images/train", "--output", "out"]) == 0
    said = capsys.readouterr().out
    assert "12 images of train" in said and "for dark (1)" in said


def test_a_model_without_mistakes_has_no_sheet_of_them(run, image_folder, capsys):
    assert evaluate.main(["run"]) == 0
    assert (run.path / "evaluation" / "mistakes.png").exists()
    for image in (image_folder / "test" / "light").iterdir():
        Image.new("RGB", (9, 9), (250,) * 3).save(image)
    assert evaluate.main(["run", "--overwrite"]) == 0
    assert "accuracy 100.00 %" in capsys.readouterr().out
    assert not (run.path / "evaluation" / "mistakes.png").exists()


def test_a_wrong_request_is_status_2(run, capsys):
    for arguments, message in (
        (["run/model.keras"], "--dataset"),
        (["run", "--part", "val"], "'val'; it has train, test"),
        (["run", "--weights", "best"], "has no best weights"),
        (["run", "--dataset", "imagse"], "'imagse'"),
        (["run", "--label-column", "fine"], "--label-column fine goes with --dataset hf:NAME"),
        (["run", "--dataset", "demo", "--label-column", "fine"], "hf:NAME alone, not demo"),
        (["run", "--image-size", "9"], "takes images of 8x8"),
    ):
        assert evaluate.main(arguments) == 2, arguments
        assert message in capsys.readouterr().err
    assert not (run.path / "evaluation").exists()


def test_nothing_is_written_through_a_link_nor_over_a_runs_own_summary(run, tmp_path, capsys):
    before = run.summary()
    assert evaluate.main(["run", "--output", "run", "--overwrite"]) == 2
    assert "run folder" in capsys.readouterr().err and run.summary() == before
    (tmp_path / "elsewhere").mkdir()
    (run.path / "evaluation").symlink_to(tmp_path / "elsewhere")
    assert evaluate.main(["run"]) == 2
    assert "is a link" in capsys.readouterr().err and not list((tmp_path / "elsewhere").iterdir())


def test_an_evaluation_that_fails_leaves_the_one_before(run, capsys):
    assert evaluate.main(["run"]) == 0
    before = (run.path / "evaluation" / "summary.json").read_text()
    run.model_path.write_text("damaged")
    assert evaluate.main(["run", "--overwrite"]) == 2
    assert (run.path / "evaluation" / "summary.json").read_text() == before
