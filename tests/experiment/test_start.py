"""The choice of the run folder: a new one, or the one to resume."""

import os

import pytest

from elastictrainer import UsageError
from elastictrainer.cli import train
from elastictrainer.experiment import start as starting
from elastictrainer.experiment.settings import TrainSettings
from elastictrainer.experiment.start import last_unfinished, start
from elastictrainer.runs.run_folder import RunFolder


def test_the_last_run_that_has_not_ended(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="runs/"):
        last_unfinished()
    for time, name in enumerate(("a", "c", "b", "done")):
        run = RunFolder.create(tmp_path / "runs" / name)
        run.write_config({"scheme": "full"})
        os.utime(run.config_path, (time, time))
    run.summary_path.write_text("{}")
    assert last_unfinished().path.name == "b"
    (tmp_path / "runs" / "b" / "config.yaml").write_text("scheme: no-such")
    assert train.main(["--resume", "last"]) == 2
    assert "no-such" in capsys.readouterr().err


@pytest.fixture
def started(tmp_path, monkeypatch):
    """A function that starts a run that trains nothing, always in one second; returns its folder's name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(starting.time, "strftime", lambda form: "20260301-120000")
    monkeypatch.setattr(starting, "_train", _write)

    def started(**settings):
        return start(TrainSettings(**{"model": "demo", "dataset": "demo", **settings})).name

    return started


def _write(settings, run, resume):
    run.begin()
    return run.path


def test_runs_of_one_second_have_folders_of_their_own(started, tmp_path):
    name = "20260301-120000_demo_elastic_rho0.5"
    assert [started() for _ in range(3)] == [name, f"{name}_2", f"{name}_3"]
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [name, f"{name}_2", f"{name}_3"]


@pytest.mark.parametrize(
    "settings, name",
    [
        ({"scheme": "full"}, "demo_full"),
        ({"time": "1.5h"}, "demo_freeze-below_1.5h"),
        ({"time": "10m", "scheme": "full"}, "demo_full_10m"),
        ({"scheme": "usermodels:Odd", "rho": 0.25}, "demo_usermodels-Odd"),
    ],
)
def test_a_folder_is_named_by_what_was_asked(started, settings, name):
    assert started(**settings) == f"20260301-120000_{name}"


def test_a_run_that_is_refused_leaves_no_folder(started, tmp_path, monkeypatch):
    def refuse(*arguments, **others):
        raise UsageError("no")

    monkeypatch.setattr(starting, "_train", refuse)
    with pytest.raises(UsageError):
        started()
    assert list((tmp_path / "runs").iterdir()) == []


def test_without_arguments_it_says_how_to_begin(capsys):
    assert train.main([]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 5 and all("et-train " in line for line in said[1:])
