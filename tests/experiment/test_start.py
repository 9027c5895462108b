"""The choice of the run folder to resume."""

import os

import pytest

from elastictrainer import UsageError
from elastictrainer.cli import train
from elastictrainer.cli.command import make_parser
from elastictrainer.experiment.options import parse
from elastictrainer.experiment.settings import TrainSettings
from elastictrainer.experiment.start import last_unfinished
from elastictrainer.runs.run_folder import RunFolder


def test_the_last_run_that_has_not_ended(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="no unfinished run in runs/"):
        last_unfinished()
    for time, name in enumerate(("a", "c", "b", "b-worker1", "done")):
        run = RunFolder.create(tmp_path / "runs" / name)
        run.write_config({"scheme": "full"})
        os.utime(run.config_path, (time, time))
    run.summary_path.write_text("{}")
    assert last_unfinished().path.name == "b"
    (tmp_path / "runs" / "b" / "config.yaml").write_text("scheme: no-such")
    assert train.main(["--resume", "last"]) == 2
    assert "no-such" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options, weights", [((), "imagenet"), (("--init-from", "earlier"), "none")], ids=["anew", "warm"]
)
def test_processes_have_plain_paths_and_only_the_weights_they_need_are_fetched(monkeypatch, options, weights):
    from elastictrainer.experiment import assembly, start

    fetched, launched = [], []
    monkeypatch.setattr(assembly, "fetch", lambda settings: fetched.append(settings.weights))
    monkeypatch.setattr(start.launcher, "train", lambda commands, *others, **more: launched.extend(commands))
    arguments = ["--strategy", "mirrored", "--replicas", "2", *options, "--output", "runs/a/"]
    settings, _ = parse(TrainSettings, arguments, make_parser("et-train", "", ""))
    start.start(settings, arguments)
    assert fetched == [weights]
    assert [command[-1] for command in launched] == ["runs/a"] * 2
