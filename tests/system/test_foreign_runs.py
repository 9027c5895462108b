"""A run folder from elsewhere: its settings are read, and the code that they name is not run unasked."""

import sys

import pytest

from elastictrainer.cli import plot, train
from run_builders import make_run


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run whose config names a module that leaves a trace when it is imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mischief", raising=False)
    (tmp_path / "mischief.py").write_text("open('done', 'w').close()\ndef scheme(): pass\n")
    return make_run(tmp_path / "run")


def name(run, **settings):
    settings = {"model": "demo", "dataset": "demo", **settings}
    run.config_path.write_text("".join(f"{key}: {value}\n" for key, value in settings.items()))


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize(
    "settings",
    [
        {"scheme": "mischief:scheme"},
        {"model": "mischief:scheme"},
        {"callback": "mischief:scheme"},
        {"trust_model": True},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_resume_asks_before_it_runs_foreign_code(run, tmp_path, capsys, settings, finished):
    name(run, **settings)
    if not finished:
        run.summary_path.unlink()
    assert train.main(["--resume", "run"]) == 2
    said = capsys.readouterr().err
    assert "run/config.yaml" in said and "--trust-run" in said
    assert not (tmp_path / "done").exists()


def test_trusted_it_is_run(run, tmp_path, capsys):
    pytest.importorskip("tensorflow")
    name(run, scheme="mischief:scheme")
    run.summary_path.unlink()
    train.main(["--resume", "run", "--trust-run"])
    assert (tmp_path / "done").exists()


def test_a_foreign_run_that_names_no_code_needs_no_trust(run, capsys):
    name(run, scheme="full")
    assert train.main(["--resume", "run"]) == 0
    assert "is finished" in capsys.readouterr().out


@pytest.mark.parametrize("what", ["curves", "table", "report"])
def test_plots_of_results_never_run_what_a_config_names(run, tmp_path, what):
    name(run, scheme="mischief:scheme", rho=0.5)
    output = {"report": "report.html", "table": "table.json"}.get(what, "figure.png")
    assert plot.main([what, "run", "--output", output]) == 0
    assert not (tmp_path / "done").exists()


def test_what_builds_the_foreign_model_asks(tf, run, tmp_path, capsys):
    name(run, model="mischief:scheme")
    run.model_path.write_text("a model")
    assert plot.main(["data", "run", "--output", "figure.png"]) == 2
    assert "--trust-run" in capsys.readouterr().err
    assert train.main(["--init-from", "run", "--dataset", "demo"]) == 2
    assert "--trust-run" in capsys.readouterr().err
    assert not (tmp_path / "done").exists()
    plot.main(["data", "run", "--output", "figure.png", "--trust-run"])
    assert (tmp_path / "done").exists()
