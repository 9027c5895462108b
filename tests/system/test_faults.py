"""Real processes that are killed, interrupted, or find the disk full: what was trained is not lost."""

import json
import os
import signal
import subprocess
import time

import numpy as np
import pytest

from builders import make_images
from processes import Process, finished, run

pytest.importorskip("tensorflow")

NETWORK = ("--model", "usermodels:residual", "--image-size", "32", "--dataset", "images")
# A profile that other work has disturbed allows this rho.
SMALL = (*NETWORK, *"--profile profile.json --importance-batches 2 --rho 0.9 --deterministic".split())
KILLS = int(os.environ.get("KILLS", "3"))


def start(folder, *arguments, **options):
    return Process(folder, "et-train", *arguments, **options)


def wait_for(process, word):
    assert any(word in line for line in process.stdout), f"{word!r} never came"


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults")
    make_images(folder / "images", train=24)
    run(folder, "et-profile", *NETWORK, *"--profile profile.json --steps 3 --calibration-seconds 1".split())
    return folder


def lines(path):
    """The records of a log, every line of which must be whole; without what a clock measured."""
    text = path.read_text()
    assert text.endswith("\n")
    clocked = ("step_ms_median", "ratio", "train_seconds", "train_seconds_total")
    return [{k: v for k, v in json.loads(line).items() if k not in clocked} for line in text.splitlines()]


def saved(run):
    return sorted(path.name for path in (run / "checkpoints").glob("step-*"))


@pytest.mark.slow
def test_killed_at_random_moments_the_result_is_the_same(workshop, tf):
    options = (*SMALL, "--epochs", str(8 + KILLS // 4 * 4), "--interval", "4")
    finished(start(workshop, *options, "--output", "whole"))
    random = np.random.default_rng(0)
    kills = while_writing = 0
    arguments = (*options, "--checkpoint-minutes", "0", "--output", "parts")  # a checkpoint after every step
    while kills < KILLS:
        process = start(workshop, *arguments)
        if kills % 4:  # mostly while it trains and saves; now and then while it starts
            before = saved(workshop / "parts")
            while saved(workshop / "parts") == before and process.poll() is None:
                time.sleep(0.01)
            time.sleep(random.uniform(0.0, 0.15))
        else:
            time.sleep(random.uniform(0.2, 3.0))
        process.kill()
        process.wait()
        kills += 1
        while_writing += any((workshop / "parts" / "checkpoints").glob(".*.part*"))
        assert not (workshop / "parts" / "summary.json").exists(), "the run is too short for this test"
        if (workshop / "parts" / "config.yaml").exists():
            arguments = ("--resume", "parts")
    said = finished(start(workshop, "--resume", "parts"))
    assert "resumed after step" in said and (while_writing or KILLS < 20)
    # Most of its steps read the cache, so most of the kills come while it does.
    assert json.loads((workshop / "whole" / "summary.json").read_text())["cached_share"] > 0.5
    for log in ("metrics.jsonl", "selections.jsonl"):
        assert lines(workshop / "whole" / log) == lines(workshop / "parts" / log)
    models = (tf.keras.models.load_model(workshop / run / "model.keras") for run in ("whole", "parts"))
    for a, b in zip(*(model.get_weights() for model in models)):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_killed_while_its_folder_is_filled_a_run_can_be_started_or_resumed(workshop):
    # In one epoch nothing is cached: on a busy machine rho_min may be above the other runs' rho.
    options = (*SMALL, "--rho", "0.9", "--epochs", "1", "--output", "early")

    def killed_before(file):
        finished(start(workshop, *options, ends_before=f"early/{file}"), status=9)

    killed_before("config.yaml")
    assert any((workshop / "early").glob(".config.*")) and not (workshop / "early" / "config.yaml").exists()
    killed_before("profile.json")  # the same command starts, and gets a little further
    assert {path.name for path in (workshop / "early").iterdir() if ".part" not in path.name} == {
        ".elastictrainer",
        ".lock",
        "config.yaml",
    }
    finished(start(workshop, "--resume", "early"))
    names = {path.name for path in (workshop / "early").iterdir()}
    assert {"config.yaml", "profile.json", "environment.json", "summary.json", "model.keras"} <= names
    environment = json.loads((workshop / "early" / "environment.json").read_text())
    assert environment["class_names"] == ["dark", "light"]


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_saves_and_says_how_to_go_on(workshop, number):
    output = f"stopped{number}"
    process = start(workshop, *SMALL, "--scheme", "full", "--epochs", "5000", "--output", output)
    wait_for(process, "epoch    2")
    process.send_signal(number)
    said = finished(process, status=130)
    assert f"et-train --resume {output}" in said
    saved = max((workshop / output / "checkpoints").glob("step-*"))
    process = start(workshop, "--resume", output)
    wait_for(process, f"resumed after step {int(saved.name[5:])}")
    # A second process is kept out of the folder, whatever it wants there.
    for arguments in (("--resume", output), (*SMALL, "--output", output, "--overwrite")):
        assert f"{output} is in use" in finished(start(workshop, *arguments), status=2)
    process.send_signal(number)
    finished(process, status=130)


@pytest.mark.slow
def test_a_file_size_limit_stops_the_run_and_keeps_the_last_checkpoint(workshop):
    """A quota's stand-in where no file system can be mounted: the checkpoint outgrows what a file may be."""
    finished(start(workshop, *SMALL, "--scheme", "full", "--epochs", "2", "--output", "quota"))
    for path in (workshop / "quota" / "summary.json", workshop / "quota" / "model.keras"):
        path.unlink()
    newest = max((workshop / "quota" / "checkpoints").glob("step-*"))
    before = {p: p.read_bytes() for p in newest.iterdir()}
    config = workshop / "quota" / "config.yaml"
    config.write_text(config.read_text().replace("epochs: 2", "epochs: 3"))

    resume = ("--resume", "quota", "--trust-run")  # its settings were changed
    half = max(len(content) for content in before.values()) // 2
    said = finished(start(workshop, *resume, largest_file=half), status=1)
    assert "checkpoint" in said and str(newest.relative_to(workshop)) in said
    assert {p: p.read_bytes() for p in newest.iterdir()} == before
    assert not list((workshop / "quota" / "checkpoints").glob(".*"))
    finished(start(workshop, *resume))
    assert json.loads((workshop / "quota" / "summary.json").read_text())["epochs"] == 3


@pytest.fixture
def small_disk(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()

    def mount(*options):
        return subprocess.run(
            ["mount", "-t", "tmpfs", *options, "tmpfs", str(disk)], capture_output=True
        ).returncode

    if mount("-o", "size=4k"):
        pytest.skip("mounting a small file system needs more rights than this process has")
    yield disk, lambda kilobytes: mount("-o", f"remount,size={kilobytes}k")
    subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.long
def test_a_full_disk_stops_the_run_and_keeps_the_last_checkpoint(workshop, small_disk):
    disk, resize = small_disk
    finished(start(workshop, *SMALL, "--scheme", "full", "--epochs", "1", "--output", "size"))
    saved = max((workshop / "size" / "checkpoints").glob("step-*"))
    kilobytes = sum(p.stat().st_size for p in saved.iterdir()) // 1024
    model = (workshop / "size" / "model.keras").stat().st_size // 1024  # of the solved head, before all else
    resize(int(2.6 * kilobytes) + model)  # two checkpoints, and no third
    said = finished(
        start(workshop, *SMALL, "--scheme", "full", "--epochs", "9", "--output", disk / "run"), status=1
    )
    assert "checkpoint" in said and "No space left" in said
    kept = sorted((disk / "run" / "checkpoints").iterdir())
    assert [p.name[:5] for p in kept] == ["step-"] * 2
    resize(20 * kilobytes)
    said = finished(start(workshop, "--resume", disk / "run"))
    assert f"resumed after step {int(kept[-1].name[5:])}" in said
    assert [r["epoch"] for r in lines(disk / "run" / "metrics.jsonl")] == list(range(10))
