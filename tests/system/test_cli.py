"""The commands as a user runs them: processes of their own."""

import json
import re
import signal
from pathlib import Path

import pytest

from builders import make_images
from elastictrainer.cli import plot, profile, train
from processes import Process, finished, run

pytest.importorskip("tensorflow")
pytestmark = pytest.mark.slow

SMALL = ("--model", "usermodels:residual", "--image-size", "32", "--calibration-seconds", "2")


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    """A folder in which a profile and an elastic run on the two-class images have been made."""
    folder = tmp_path_factory.mktemp("workshop")
    make_images(folder / "images", train=24)
    run(folder, "et-profile", *SMALL, "--dataset", "images")
    # A busy machine may not do with a smaller rho.
    options = "--dataset images --rho 0.95 --epochs 2 --interval 1 --importance-batches 2 --output elastic"
    return folder, run(folder, "et-train", *SMALL, *options.split())


def test_train_finds_the_profile_and_writes_its_folder(workshop):
    folder, train = workshop
    assert re.search(r"^profile: profiles/\S+_32x32_c2_b16_adamw_", train, re.M) and "making one" not in train
    assert "requested 0.950" in train
    names = {p.name for p in (folder / "elastic").iterdir()}
    files = "config.yaml environment.json metrics.jsonl selections.jsonl summary.json profile.json"
    assert {*files.split(), "events", "checkpoints", "model.keras"} <= names
    assert not [n for n in names if ".part" in n]


def test_a_real_run_and_profile_are_drawn(workshop, monkeypatch):
    monkeypatch.chdir(workshop[0])
    timings = str(next(Path("profiles").glob("*_32x32_c2_b16_adamw_*.json")))
    for what, path in {"curves": "elastic", "selection": "elastic", "timings": timings}.items():
        assert plot.main([what, path, "--output", f"{what}.png", "--csv", f"{what}.csv"]) == 0
        assert Path(f"{what}.png").read_bytes().startswith(b"\x89PNG")
        assert len(Path(f"{what}.csv").read_text().splitlines()) >= 2
    assert plot.main(["report", "elastic"]) == 0 and "Selected tensors" in Path("report.html").read_text()


@pytest.mark.long
def test_train_makes_a_profile_where_there_is_none_and_says_so(workshop):
    folder, _ = workshop
    options = "--dataset images --batch-size 8 --rho 0.9 --epochs 1 --importance-batches 1 --output fresh"
    said = run(folder, "et-train", *SMALL, *options.split())
    (made,) = (folder / "profiles").glob("*_32x32_c2_b8_adamw_*.json")
    assert "making one" in said and json.loads(made.read_text())["metadata"]["calibration_seconds"] == 2


@pytest.mark.parametrize("command", [profile, train])
def test_help_has_defaults_and_an_example(capsys, command):
    with pytest.raises(SystemExit) as ended:
        command.main(["--help"])
    said = capsys.readouterr().out
    assert not ended.value.code and "default: 16" in said and "example:" in said


def test_failed_run_is_status_1(workshop):
    options = "--dataset images --scheme full --learning-rate 1e30 --epochs 1 --output diverged"
    said = run(workshop[0], "et-train", *SMALL, *options.split(), status=1)
    assert "--learning-rate" in said


def test_interrupt_is_status_130(workshop):
    arguments = (*SMALL, "--dataset", "images", "--scheme", "full", "--epochs", "5000", "--output", "stopped")
    process = Process(workshop[0], "et-train", *arguments)
    for line in process.stdout:
        if line.startswith("epoch"):
            break
    process.send_signal(signal.SIGINT)
    assert "et-train --resume stopped" in finished(process, status=130)


def test_a_run_in_a_given_time_leaves_a_whole_folder_and_can_be_given_more(tmp_path):
    make_images(tmp_path / "images", train=24)
    options = ("--dataset", "images", "--scheme", "full", "--output", "timed")
    said = run(tmp_path, "et-train", *SMALL[:4], *options, "--time", "20s")
    assert "head solved in" in said
    first = json.loads((tmp_path / "timed" / "summary.json").read_text())
    assert first["rho_requested"] is None and first["accuracy"] > 0.5
    assert "nothing to resume" in run(tmp_path, "et-train", "--resume", "timed")
    run(tmp_path, "et-train", "--resume", "timed", "--time", "5s")
    second = json.loads((tmp_path / "timed" / "summary.json").read_text())
    assert second["steps"] > first["steps"]
    lines = [json.loads(line) for line in (tmp_path / "timed" / "metrics.jsonl").open()]
    epochs = [line["epoch"] for line in lines if "images" not in line]  # these are of heads
    assert epochs == list(range(1, len(epochs) + 1)) and len(epochs) == second["epochs"] > first["epochs"]
