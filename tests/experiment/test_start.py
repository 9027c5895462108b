"""The choice of the run folder to resume."""

import os

import pytest

from elastictrainer import UsageError
from elastictrainer.cli import train
from elastictrainer.experiment.start import last_unfinished
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
