"""Replicas on one machine: what devices they get, and who is named when one fails."""

import json
import os

import pytest

from elastictrainer import RunError, UsageError
from elastictrainer.training import launcher

SHELL = ("sh", "-c")


@pytest.mark.parametrize(
    "first, second, expected",
    [
        # Both refuse: the first one has said so.
        ("sleep 0.5; exit 2", "echo et-train: wrong >&2; exit 2", (SystemExit, "2")),
        ("sleep 0.5; exit 1", "echo et-train: no disk >&2; exit 1", (RunError, "replica 1 failed: no disk")),
        ("sleep 0.5", "kill -9 $$", (RunError, "replica 1 failed: it was killed")),
        ("kill -9 $$", "sleep 0.5", (RunError, "replica 0 failed: it was killed")),
        ("exit 0", "echo et-train: odd >&2; exit 2", (UsageError, "replica 1: odd")),
        ("exit 1", "sleep 0.5; exit 1", (SystemExit, "1")),
        ("exit 130", "exit 130", (SystemExit, "130")),
        ("exit 0", "exit 0", None),
    ],
)
def test_who_is_named_when_replicas_fail(tmp_path, first, second, expected):
    def train():
        launcher.train([[first], [second]], [None, None], str(tmp_path), program=SHELL)

    if expected is None:
        return train()
    with pytest.raises(expected[0], match=expected[1]):
        train()


def test_how_to_go_on_is_said_where_there_is_a_run(tmp_path):
    (tmp_path / "config.yaml").write_text("scheme: full")
    with pytest.raises(RunError, match=f"Go on with: et-train --resume {tmp_path}"):
        launcher.train([["sleep 0.5"], ["kill -9 $$"]], [None, None], str(tmp_path), program=SHELL)


def test_each_replica_is_told_who_it_is_and_which_device_is_its_own(tmp_path):
    script = f'echo "$TF_CONFIG" > {tmp_path}/config$CUDA_VISIBLE_DEVICES'
    launcher.train([[script], [script]], ["4", "6"], str(tmp_path), program=SHELL)
    first, second = (json.loads((tmp_path / f"config{gpu}").read_text()) for gpu in (4, 6))
    assert first["cluster"] == second["cluster"] and len(set(first["cluster"]["worker"])) == 2
    assert [config["task"]["index"] for config in (first, second)] == [0, 1]


def test_modules_of_the_working_directory_stand_for_no_others(tmp_path, monkeypatch):
    (tmp_path / "elastictrainer").mkdir()
    for module in ("elastictrainer/__init__.py", "argparse.py", "numpy.py"):
        (tmp_path / module).write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    launcher.train([["--help"], ["--help"]], [None, None], str(tmp_path / "run"))


def test_without_gpus_their_number_must_be_said(tf):
    assert launcher.devices(3) == [None] * 3
    with pytest.raises(UsageError, match="--replicas 2"):
        launcher.devices(None)


def test_gpus_are_named_as_the_environment_names_them(tf, monkeypatch):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["a", "b", "c"])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert launcher.devices(None) == ["0", "1", "2"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6,7")
    assert launcher.devices(2) == ["4", "6"]
    with pytest.raises(UsageError, match="TensorFlow sees 3 GPUs"):
        launcher.devices(4)


def test_run_folders_are_told_apart():
    assert [launcher.suffix(rank) for rank in (0, 1)] == ["", "-worker1"]
    assert not launcher.is_replica() and "TF_CONFIG" not in os.environ
