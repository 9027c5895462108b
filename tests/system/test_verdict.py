"""The sentence of the demo: what elastic training and its rivals took and reached."""

import re

import pytest

from elastictrainer.runs.run_folder import RunFolder
from run_builders import make_run

WAYS = {
    "full": (12, 100.0),
    "short": (6, 50.0),
    "below": (12, 51.0),
    "elastic": (12, 51.0),
}  # epochs, seconds


@pytest.fixture
def sentence_of(script, monkeypatch, capsys, tmp_path):
    """A function that returns what the script prints for the accuracies of each of WAYS, one a seed."""

    def run(*accuracies, head=None):
        arguments = ["verdict.py"]
        for (way, (epochs, seconds)), of_seeds in zip(WAYS.items(), accuracies):
            arguments.append(f"--{way}")
            for k, accuracy in enumerate(of_seeds):
                made = make_run(tmp_path / f"{way}{k}", seconds=seconds, accuracy=accuracy)
                made.write_config({**made.config(), "epochs": epochs})
                arguments.append(str(made.path))
                if head and way == "elastic":
                    RunFolder(made.path).add_metrics({"epoch": 0, "test_accuracy": head})
        monkeypatch.setattr("sys.argv", arguments)
        script("verdict").main()
        return capsys.readouterr().out.strip()

    return run


@pytest.mark.parametrize(
    "accuracies, said",
    [
        ((0.9, 0.85, 0.88, 0.89), ("89.00 %", "1.00 points below", "4.00 points above", "1.00 points above")),
        ((0.9, 0.85, 0.83, 0.8), ("80.00 %", "10.00 points below", "5.00 points below", "3.00 points below")),
        ((0.9, 0.9, 0.9, 0.9), ("90.00 %", "level with", "level with", "level with")),
    ],
)
def test_whoever_is_ahead_is_said_to_be(sentence_of, accuracies, said):
    sentence = sentence_of(*([accuracy] for accuracy in accuracies))
    assert re.search(".* ".join(["took 0.51 of ", *said]), sentence)
    assert "6 epochs instead of 12, " in sentence and sentence.endswith(" freeze-below.")


def test_of_several_seeds_the_medians_count_and_the_solved_head_comes_first(sentence_of):
    accuracies = (0.9, 0.92, 0.5), (0.8, 0.8, 0.8), (0.9, 0.9, 0.9), (0.1, 0.93, 0.92)
    sentence = sentence_of(*accuracies, head=0.75)
    assert re.match(r"\D+ head \D+75.00 %\.", sentence)
    assert re.search("92.00 %: 2.00 points above .* 12.00 points above", sentence)
    assert sentence.endswith("medians of 3 seeds.")


def test_a_run_that_did_not_finish_is_named(script, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["verdict.py", *(word for way in WAYS for word in (f"--{way}", "a"))])
    with pytest.raises(SystemExit) as ended:
        script("verdict").main()
    assert ended.value.code == 2 and "a has no summary.json" in capsys.readouterr().err
