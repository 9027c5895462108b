"""Run folders of others, damaged in every way: each is named, none is a Python error."""

import pytest

from elastictrainer import UsageError
from elastictrainer.cli import plot
from elastictrainer.runs import schemas
from elastictrainer.runs.run_folder import RunFolder
from run_builders import make_run

READERS = {
    "config.yaml": RunFolder.config,
    "environment.json": RunFolder.environment,
    "metrics.jsonl": RunFolder.metrics,
    "selections.jsonl": RunFolder.selections,
    "summary.json": RunFolder.summary,
}


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path / "run")


def test_what_a_run_leaves_is_sound(run):
    for name, read in READERS.items():
        assert (run.path / name).exists() and read(run)


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
        ("config.yaml", "- full", "key: value"),
        ("config.yaml", "scheme: full\nseed: 0o9", "seed"),
        ("config.yaml", "", "'scheme' is a required property"),
    ],
    ids=lambda value: repr(value[:30]),
)
def test_what_is_damaged_is_named(run, name, content, said):
    (run.path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UsageError) as error:
        READERS[name](run)
    assert str(run.path / name) in str(error.value) and said in str(error.value)
    assert len(str(error.value)) < 500


@pytest.mark.parametrize("name", READERS)
def test_every_command_that_reads_a_damaged_run_says_so(run, capsys, tmp_path, name):
    (run.path / name).write_text("[1, 2]\n")
    found = [
        plot.main([what, str(run.path), "--output", str(tmp_path / out)])
        for what, out in (
            ("curves", "a.png"),
            ("selection", "b.png"),
            ("report", "c.html"),
            ("table", "d.json"),
        )
    ]
    said = capsys.readouterr().err
    assert 2 in found and set(found) <= {0, 2} and name in said and "Traceback" not in said


@pytest.mark.parametrize("key", ["importance_seconds", "train_seconds", "rho_achieved"])
def test_no_lacking_key_reaches_a_plot(run, key):
    summary = {k: v for k, v in run.summary().items() if k != key}
    with pytest.raises(UsageError, match=key):
        schemas.check(run.summary_path, summary)
