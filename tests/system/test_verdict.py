"""The verdict of the demo: what late layers, chosen tensors and full training took and reached."""

import re

import pytest

from elastictrainer.runs.run_folder import RunFolder
from run_builders import make_run

WAYS = {
    "full": (12, 100.0),
    "short": (6, 50.0),
    "below": (12, 51.0),
    "elastic": (12, 40.0),
}  # epochs, seconds


@pytest.fixture
def verdict_of(script, monkeypatch, capsys, tmp_path):
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
    "accuracies, late, chosen",
    [
        (
            (0.9, 0.85, 0.88, 0.89),
            ("88.00 %", "2.00 points below", "3.00 points above"),
            ("89.00 %", "1.00 points below", "4.00 points above"),
        ),
        (
            (0.9, 0.85, 0.83, 0.95),
            ("83.00 %", "7.00 points below", "2.00 points below"),
            ("95.00 %", "5.00 points above", "10.00 points above"),
        ),
        ((0.9, 0.9, 0.9, 0.9), *2 * (("90.00 %", "level with", "level with"),)),
    ],
)
def test_whoever_is_ahead_is_said_to_be(verdict_of, accuracies, late, chosen):
    said = verdict_of(*([accuracy] for accuracy in accuracies))
    for words, share, numbers in (("Late layers", 0.51, late), ("Chosen tensors", 0.4, chosen)):
        parts = (f"{words} .* took {share:.2f} of", *numbers)
        assert re.search("[^A-Z]*".join(parts) + " that of 6[.]", said), said
    assert said.count(" full training of 12 epochs, ") == 2 and "seeds" not in said


def test_of_several_seeds_the_medians_count_and_the_solved_head_comes_first(verdict_of):
    accuracies = (0.9, 0.92, 0.5), (0.8, 0.8, 0.8), (0.9, 0.9, 0.9), (0.1, 0.93, 0.92)
    said = verdict_of(*accuracies, head=0.75)
    assert re.match(r"\D+ head \D+75.00 %\.", said)
    assert re.search("92.00 %: 2.00 points above .* 12.00 points above", said)
    assert said.endswith("Medians of 3 seeds.")


def test_a_run_that_did_not_finish_is_named(script, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["verdict.py", *(word for way in WAYS for word in (f"--{way}", "a"))])
    with pytest.raises(SystemExit) as ended:
        script("verdict").main()
    assert ended.value.code == 2 and "a has no summary.json" in capsys.readouterr().err
