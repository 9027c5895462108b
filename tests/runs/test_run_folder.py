"""A run folder: who may write to it, what is read back, and what is damaged: each file is named."""

import errno
import os
import shlex

import pytest

from elastictrainer.cli import plot
from elastictrainer.errors import UsageError
from elastictrainer.runs.run_folder import RunFolder, find_runs
from run_builders import make_run

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
    earlier = {key: value for key, value in SUMMARY.items() if key != "accuracy"}
    run.write_summary({**earlier, "accuracy_last": 0.25})
    assert run.summary()["accuracy"] == 0.25, "of an earlier version"


def test_a_run_named_twice_is_one_run_and_keeps_its_place(run, tmp_path):
    other = RunFolder.create(tmp_path / "other")
    other.write_config({"scheme": "elastic"})
    named = [str(run.path), str(other.path), f"{run.path}/", f"{other.path}/../run"]
    assert [found.path for found in find_runs(named)] == [run.path, other.path]


def test_a_rewound_log_keeps_its_first_lines_a_torn_last_one_is_left_out_and_a_damaged_one_named(run):
    for epoch in range(3):
        run.add_metrics({"epoch": epoch})
    run.rewind(metrics=1, selections=0)
    assert run.metrics() == [{"epoch": 0}] and run.selections() == []
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


def test_a_claimed_folder_is_refused_to_others_and_what_a_killed_process_has_half_written_goes(run):
    weights = run.path / ".abc.part"
    weights.mkdir()
    (weights / "model.weights.h5").write_text("half")
    with run.claimed(resume=True):
        assert not weights.exists() and run.config_path.exists()
        with pytest.raises(UsageError, match="in use"):
            with RunFolder(run.path).claimed(resume=True):
                pass


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


READERS = {
    "config.yaml": RunFolder.config,
    "environment.json": RunFolder.environment,
    "metrics.jsonl": RunFolder.metrics,
    "selections.jsonl": RunFolder.selections,
    "summary.json": RunFolder.summary,
}


@pytest.fixture
def whole(tmp_path):
    return make_run(tmp_path / "run")


@pytest.mark.parametrize(
    "name, content, said",
    [
        ("summary.json", "", "Expecting value"),
        ("summary.json", "[]", "is not of type 'object'"),
        ("summary.json", "{}", "is a required property"),
        ("summary.json", "{'a': 1}", "property name"),
        ("summary.json", "[" * 100_000, "recursion"),
        ("summary.json", '{"accuracy_best": NaN}', "NaN is not JSON"),
        ("summary.json", '{"accuracy_best": ' + "9" * 5000 + "}", "damaged"),
        ("summary.json", b"\xff\xfe{}", "no text"),
        ("metrics.jsonl", "7\n", "is not of type 'object'"),
        ("metrics.jsonl", '{"epoch": "one"}\n', "epoch: 'one' is not of type 'number'"),
        ("metrics.jsonl", '{"epoch": 1, "test_accuracy": 1e999}\n', "test_accuracy: inf is greater"),
        ("metrics.jsonl", '{"epoch": 1, "test_loss": [1]}\n', "test_loss"),
        ("selections.jsonl", '{"selected": "all"}\n', "selected"),
        ("selections.jsonl", '{"selected": [-1]}\n', "selected/0"),
        ("selections.jsonl", '{"importance": [null]}\n', "importance/0"),
        ("environment.json", '{"class_names": "ab"}', "class_names: 'ab' is not of type 'array'"),
        ("environment.json", '{"class_names": ["a", "a"]}', "has non-unique elements"),
        ("environment.json", '{"class_names": [1, 2]}', "class_names"),
        ("environment.json", '{"data": {}}', "required property"),
        ("config.yaml", "rho: 0.5", "'scheme' is a required property"),
        ("config.yaml", "scheme: full\nrho: half", "rho: 'half' is not of type"),
        ("config.yaml", "scheme: full\nepochs: [1]", "line 2"),
        ("config.yaml", "scheme: full\nseed: 0o9", "seed"),
        ("config.yaml", "", "'scheme' is a required property"),
    ],
    ids=lambda value: repr(value[:30]),
)
def test_what_is_damaged_is_named(whole, name, content, said):
    (whole.path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UsageError) as error:
        READERS[name](whole)
    assert str(whole.path / name) in str(error.value) and said in str(error.value)
    assert len(str(error.value)) < 500


@pytest.mark.parametrize("name", READERS)
def test_every_command_that_reads_a_damaged_run_says_so(whole, capsys, tmp_path, name):
    (whole.path / name).write_text("[1, 2]\n")
    outputs = {"curves": "a.png", "selection": "b.png", "report": "c.html", "table": "d.json"}.items()
    found = [plot.main([what, str(whole.path), "--output", str(tmp_path / name)]) for what, name in outputs]
    said = capsys.readouterr().err
    assert 2 in found and set(found) <= {0, 2} and name in said and "Traceback" not in said


@pytest.mark.parametrize("key", ["importance_seconds", "train_seconds", "rho_achieved"])
def test_no_lacking_key_reaches_a_plot(whole, key):
    whole.write_summary({k: v for k, v in whole.summary().items() if k != key})
    with pytest.raises(UsageError, match=key):
        whole.summary()
