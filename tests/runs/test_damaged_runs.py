"""Run folders of others whose files are damaged: each is named, none is a Python error."""

import pytest

from elastictrainer import UsageError
from elastictrainer.cli import plot
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
        ("summary.json", "[]", "keys and values"),
        ("summary.json", '{"train_seconds": 1}', "no importance_seconds"),
        ("summary.json", "[" * 100_000, "recursion"),
        ("summary.json", b"\xff\xfe{}", "no text"),
        ("metrics.jsonl", "7\n", "keys and values"),
        ("metrics.jsonl", "{}\n", "no epoch"),
        ("config.yaml", "rho: 0.5", "no scheme"),
        ("config.yaml", "scheme: full\nepochs: [1]", "epochs must be a single value"),
        ("config.yaml", "- full", "key: value"),
        ("config.yaml", "", "no scheme"),
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
