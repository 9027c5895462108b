"""The commands as a user runs them: processes of their own."""

import json
import re
import signal
import time

import numpy as np
import pytest
from PIL import Image

from builders import make_images
from elastictrainer.cli import profile, train
from processes import Process, finished, run

pytest.importorskip("tensorflow")
pytestmark = pytest.mark.slow

SMALL = ("--model", "usermodels:residual", "--image-size", "32", "--calibration-seconds", "2")


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    """A folder in which a profile and an elastic run on the two-class images have been made."""
    folder = tmp_path_factory.mktemp("workshop")
    make_images(folder / "images", train=24)
    profile = run(folder, "et-profile", *SMALL, "--dataset", "images", "--validate", "2")
    train = run(
        folder,
        "et-train",
        *SMALL,
        *"--dataset images --rho".split(),
        "0.95",  # a busy machine may not do with less
        *"--epochs 2 --interval 1 --importance-batches 2 --output elastic".split(),
    )
    return folder, profile, train


def test_profile_prints_its_table_and_writes_the_profile(workshop):
    folder, profile, _ = workshop
    for word in (
        "full step",
        "forward",
        "coverage",
        "rho_min",
        "costliest tensors",
        "predicted ms",
        "absolute error",
    ):
        assert word in profile
    written = next((folder / "profiles").glob("*_32x32_c2_b4_sgd_*.json"))
    content = json.loads(written.read_text())
    assert len(content["validation"]) == 2 and set(content["validation"][0]) == {
        "selected",
        "predicted_ms",
        "measured_ms",
    }
    assert content["metadata"]["calibration_seconds"] == 2


def test_train_finds_the_profile_and_writes_its_folder(workshop):
    folder, _, train = workshop
    assert re.search(r"^profile: profiles/\S+_32x32_c2_b4_sgd_", train, re.M) and "making one" not in train
    assert "requested 0.950" in train
    names = {p.name for p in (folder / "elastic").iterdir()}
    assert {
        "config.yaml",
        "environment.json",
        "metrics.jsonl",
        "selections.jsonl",
        "summary.json",
        "events",
        "checkpoints",
        "model.keras",
        "profile.json",
    } <= names
    assert not [n for n in names if ".part" in n]


def test_plots(workshop):
    folder, _, _ = workshop
    for what in ("curves --y loss --x flops", "selection", "timings"):
        path = "elastic"
        if what == "timings":
            path = str(next((folder / "profiles").glob("*_32x32_c2_b4_sgd_*.json")))
        name, *options = what.split()
        run(folder, "et-plot", name, path, *options, "--output", f"{name}.png", "--csv", f"{name}.csv")
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert len((folder / f"{name}.csv").read_text().splitlines()) >= 2
    assert re.search(
        r"^elastic +usermodels:residual +elastic +0\.95 ", run(folder, "et-plot", "table", "elastic"), re.M
    )
    run(folder, "et-plot", "report", "elastic")
    assert "Selected tensors" in (folder / "report.html").read_text()


@pytest.mark.long
def test_train_makes_a_profile_where_there_is_none_and_says_so(workshop):
    folder, _, _ = workshop
    said = run(
        folder,
        "et-train",
        *SMALL,
        *"--dataset images --batch-size 8 --rho 0.9 --epochs 1 --importance-batches 1".split(),
        *"--output fresh".split(),
    )
    (made,) = (folder / "profiles").glob("*_32x32_c2_b8_sgd_*.json")
    assert "making one" in said and json.loads(made.read_text())["metadata"]["calibration_seconds"] == 2


def test_bad_input_is_one_clear_line_and_status_2(workshop):
    """Of two commands; test_bad_input.py has the kinds of bad input."""
    images = ("--dataset", "images", "--output", "elastic")
    assert "elastic exists" in run(workshop[0], "et-train", *SMALL, *images, status=2)
    assert "no run folder" in run(workshop[0], "et-plot", "curves", "images", status=2)


@pytest.mark.parametrize("command", [profile, train])
def test_help_has_defaults_and_an_example(capsys, command):
    with pytest.raises(SystemExit) as ended:
        command.main(["--help"])
    said = capsys.readouterr().out
    assert not ended.value.code and "default: 4" in said and "example:" in said


def test_failed_run_is_status_1(workshop):
    said = run(
        workshop[0],
        "et-train",
        *SMALL,
        *"--dataset images --scheme full --learning-rate 1e30 --epochs 1 --output diverged".split(),
        status=1,
    )
    assert "--learning-rate" in said


def test_interrupt_is_status_130(workshop):
    arguments = (*SMALL, "--dataset", "images", "--scheme", "full", "--epochs", "5000", "--output", "stopped")
    process = Process(workshop[0], "et-train", *arguments)
    for line in process.stdout:
        if line.startswith("epoch"):
            break
    process.send_signal(signal.SIGINT)
    assert "et-train --resume stopped" in finished(process, status=130)


def test_a_damaged_image_found_on_the_way_is_status_1_and_named(workshop):
    folder = workshop[0]
    victim = folder / "images" / "train" / "dark" / "5.jpg"
    whole = victim.read_bytes()
    try:
        noise = np.random.default_rng(0).integers(0, 255, (60, 60, 3), np.uint8)
        Image.fromarray(noise).save(victim, "png")
        content = bytearray(victim.read_bytes())
        content[len(content) // 2] ^= 255  # header and end are whole, the pixels are not
        victim.write_bytes(content)
        said = run(
            folder,
            "et-train",
            *SMALL,
            *"--dataset images --scheme full --epochs 2 --output".split(),
            f"damaged{time.time_ns()}",
            status=1,
        )
    finally:
        victim.write_bytes(whole)
    assert "5.jpg" in said


def test_a_run_in_a_given_time_leaves_a_whole_folder_and_can_be_given_more(tmp_path):
    make_images(tmp_path / "images", train=24)
    options = ("--dataset", "images", "--scheme", "full", "--output", "timed")
    said = run(tmp_path, "et-train", *SMALL[:4], *options, "--time", "20s")
    assert "solved on 48 images" in said
    first = json.loads((tmp_path / "timed" / "summary.json").read_text())
    assert first["rho_requested"] is None and first["accuracy"] > 0.5
    assert first["epochs"] > 12, "the time ends it, not the epochs"
    assert "nothing to resume" in run(tmp_path, "et-train", "--resume", "timed")
    run(tmp_path, "et-train", "--resume", "timed", "--time", "5s")
    second = json.loads((tmp_path / "timed" / "summary.json").read_text())
    assert second["steps"] > first["steps"]
    epochs = [json.loads(line)["epoch"] for line in (tmp_path / "timed" / "metrics.jsonl").open()]
    assert epochs == list(range(len(epochs)))


def test_a_time_that_is_none_and_one_for_a_run_by_epochs_are_refused(workshop, monkeypatch, capsys):
    monkeypatch.chdir(workshop[0])
    assert train.main([*SMALL, "--dataset", "images", "--time", "soon"]) == 2
    assert "'soon'" in capsys.readouterr().err
    assert train.main(["--resume", "elastic", "--time", "5m"]) == 2
    assert "elastic was not started with --time" in capsys.readouterr().err
