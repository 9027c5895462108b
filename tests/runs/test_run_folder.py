"""A run folder: who may write to it, and what is read back."""

import errno
import os
import shlex

import pytest

from elastictrainer.errors import UsageError
from elastictrainer.runs.run_folder import RunFolder, find_runs

SUMMARY = {
    **dict.fromkeys(("accuracy", "accuracy_best"), 0.5),
    **dict.fromkeys(("train_seconds", "importance_seconds", "selection_seconds", "trace_seconds"), 2.0),
    **dict.fromkeys(("rho_requested", "rho_predicted", "rho_achieved")),
}


@pytest.fixture
def run(tmp_path):
    made = RunFolder.create(tmp_path / "run")
    made.write_config({"scheme": "full", "epochs": 2})
    return made


def test_what_was_written_is_read(run):
    run.add_metrics({"epoch": 0})
    run.add_selection({"step": 3})
    run.write_environment({"device": "here"})
    run.write_summary(SUMMARY)
    again = RunFolder(run.path)
    assert again.config() == {"scheme": "full", "epochs": 2} and again.environment() == {"device": "here"}
    assert again.metrics() == [{"epoch": 0}] and again.selections() == [{"step": 3}]
    assert again.summary() == SUMMARY
    assert [found.path for found in find_runs([str(run.path)])] == [run.path]


def test_a_summary_of_an_earlier_version_has_its_accuracy(run):
    earlier = {key: value for key, value in SUMMARY.items() if key != "accuracy"}
    run.write_summary({**earlier, "accuracy_last": 0.25})
    assert run.summary()["accuracy"] == 0.25


def test_a_run_named_twice_is_one_run_and_keeps_its_place(run, tmp_path):
    other = RunFolder.create(tmp_path / "other")
    other.write_config({"scheme": "elastic"})
    named = [str(run.path), str(other.path), f"{run.path}/", f"{other.path}/../run"]
    assert [found.path for found in find_runs(named)] == [run.path, other.path]


def test_a_rewound_log_keeps_its_first_lines(run):
    for epoch in range(3):
        run.add_metrics({"epoch": epoch})
    run.rewind(metrics=1, selections=0)
    assert run.metrics() == [{"epoch": 0}] and run.selections() == []


def test_a_torn_last_line_is_left_out_and_a_damaged_one_is_named(run):
    run.add_metrics({"epoch": 0})
    with open(run.metrics_path, "a") as stream:
        stream.write('{"epo')
    assert run.metrics() == [{"epoch": 0}]
    run.metrics_path.write_text("nonsense\n")
    with pytest.raises(UsageError, match="metrics.jsonl is damaged"):
        run.metrics()


def test_an_earlier_run_stays_unless_it_may_be_overwritten(run):
    with pytest.raises(UsageError, match="exists.*--resume"):
        RunFolder.create(run.path)
    run.add_metrics({"epoch": 0})
    assert RunFolder.create(run.path, overwrite=True).metrics() == [] and not run.config_path.exists()


def test_another_folder_is_never_overwritten(tmp_path):
    (tmp_path / "letter.txt").write_text("mine")
    with pytest.raises(UsageError, match="not a run folder"):
        RunFolder.create(tmp_path, overwrite=True)
    assert (tmp_path / "letter.txt").read_text() == "mine"


def test_a_claimed_folder_is_refused_to_others(run):
    with run.claimed(resume=True):
        with pytest.raises(UsageError, match="in use"):
            with RunFolder(run.path).claimed(resume=True):
                pass


def test_what_a_killed_process_has_half_written_goes_when_the_run_is_resumed(run):
    weights = run.path / ".abc.part"
    weights.mkdir()
    (weights / "model.weights.h5").write_text("half")
    with run.claimed(resume=True):
        assert not weights.exists() and run.config_path.exists()


def test_a_claim_that_comes_to_nothing_leaves_no_folder(tmp_path):
    with RunFolder(tmp_path / "new").claimed():
        pass
    assert not (tmp_path / "new").exists()


def test_only_a_run_can_be_resumed_or_found(tmp_path):
    with pytest.raises(UsageError, match="nothing to resume"):
        with RunFolder(tmp_path).claimed(resume=True):
            pass
    with pytest.raises(UsageError, match="no run folder"):
        find_runs([str(tmp_path)])


def test_an_unfinished_run_has_no_summary(run):
    with pytest.raises(UsageError, match="did not finish.*--resume"):
        run.summary()


def test_links_and_names_that_cannot_be_are_told(tmp_path):
    for path in ("x" * 300, "/".join(["y" * 200] * 30), "zero\0byte"):
        with pytest.raises(UsageError, match="cannot write to .*--output"):
            RunFolder.create(tmp_path / path)


def test_a_file_system_without_locks_is_said_as_such(tmp_path, monkeypatch):
    def without_locks(descriptor, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", without_locks)
    with pytest.raises(UsageError, match="run: No locks available"):
        RunFolder.create(tmp_path / "run")


def test_the_command_that_goes_on_with_a_run_can_be_pasted(tmp_path):
    run = RunFolder.create(tmp_path / "my birds; 'twice'")
    assert shlex.split(run.resume_command) == ["et-train", "--resume", str(run.path)]
