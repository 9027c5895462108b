"""The demo's sentence: what elastic training took and reached, beside its rivals."""

import json
import re

import pytest

from elastictrainer.runs.run_folder import RunFolder
from run_builders import make_run


@pytest.fixture
def sentence_of(script, monkeypatch, capsys):
    """A function that returns what the script prints, given its arguments."""

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["verdict.py", *arguments])
        script("verdict").main()
        return capsys.readouterr().out.strip()

    return run


def finished(folder, epochs, accuracy, seconds):
    run = make_run(folder)
    run.write_config({**run.config(), "epochs": epochs})
    run.write_summary({**run.summary(), "accuracy": accuracy, "train_seconds": seconds})
    return str(folder)


def seeds(folder, full, short, below, elastic):
    """Arguments that name runs of given accuracies; one seed a position."""
    arguments = []
    for name, accuracies, epochs, seconds in (
        ("full", full, 12, 100.0),
        ("short", short, 6, 50.0),
        ("below", below, 12, 51.0),
        ("elastic", elastic, 12, 51.0),
    ):
        runs = [finished(folder / f"{name}{k}", epochs, a, seconds) for k, a in enumerate(accuracies)]
        arguments += [f"--{name}", *runs]
    return arguments


@pytest.mark.parametrize(
    "accuracies, said",
    [
        ((0.9, 0.85, 0.88, 0.89), ("89.00 %", "1.00 points below", "4.00 points above", "1.00 points above")),
        ((0.9, 0.85, 0.83, 0.8), ("80.00 %", "10.00 points below", "5.00 points below", "3.00 points below")),
        ((0.9, 0.9, 0.9, 0.9), ("90.00 %", "level with", "level with", "level with")),
    ],
)
def test_whoever_is_ahead_is_said_to_be(sentence_of, tmp_path, accuracies, said):
    sentence = sentence_of(*seeds(tmp_path, *([a] for a in accuracies)))
    assert re.search(".* ".join(["took 0.51 of ", *said]), sentence)
    assert "6 epochs instead of 12, " in sentence and sentence.endswith(" freeze-below.")


def test_of_several_seeds_the_medians_count(sentence_of, tmp_path):
    sentence = sentence_of(
        *seeds(tmp_path, (0.9, 0.92, 0.5), (0.8, 0.8, 0.8), (0.9, 0.9, 0.9), (0.1, 0.93, 0.92))
    )
    assert re.search("92.00 %: 2.00 points above .* 12.00 points above", sentence)
    assert sentence.endswith("medians of 3 seeds.")


def test_what_the_solved_head_has_comes_first(sentence_of, tmp_path):
    folders = {name: str(tmp_path / name) for name in ("full", "short", "below", "elastic")}
    for name in folders:
        finished(tmp_path / name, 6 if name == "short" else 12, 0.9, 50.0)
    run = RunFolder(folders["elastic"])
    lines = run.metrics_path.read_text()
    run.metrics_path.write_text(json.dumps({"epoch": 0, "test_accuracy": 0.75}) + "\n" + lines)
    arguments = [part for name, folder in folders.items() for part in (f"--{name}", folder)]
    assert re.match(r"\D+ head \D+75.00 %\.", sentence_of(*arguments))


def test_a_run_that_did_not_finish_is_named(sentence_of, capsys):
    with pytest.raises(SystemExit) as ended:
        sentence_of("--full", "a", "--short", "b", "--below", "c", "--elastic", "d")
    assert ended.value.code == 2 and "a has no summary.json" in capsys.readouterr().err
