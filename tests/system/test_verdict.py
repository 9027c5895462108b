"""The demo's sentence: what elastic training took and reached, beside its rivals."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from elastictrainer.runs.run_folder import RunFolder
from run_builders import make_run

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "verdict.py"


def finished(folder, epochs, accuracy, seconds):
    run = make_run(folder)
    run.write_config({**run.config(), "epochs": epochs})
    run.write_summary({**run.summary(), "accuracy_last": accuracy, "train_seconds": seconds})
    return str(folder)


def verdict(folder, full, short, elastic):
    """The verdict on runs of given accuracies; one seed a position."""
    arguments = []
    for name, accuracies, epochs, seconds in (
        ("full", full, 12, 100.0),
        ("short", short, 6, 50.0),
        ("elastic", elastic, 12, 51.0),
    ):
        runs = [finished(folder / f"{name}{k}", epochs, a, seconds) for k, a in enumerate(accuracies)]
        arguments += [f"--{name}", *runs]
    done = subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    "accuracies, said",
    [
        ((0.9, 0.85, 0.89), "ends at 89.00 %: 1.00 points below full training, 4.00 points above full"),
        ((0.9, 0.85, 0.8), "ends at 80.00 %: 10.00 points below full training, 5.00 points below full"),
        ((0.9, 0.9, 0.9), "ends at 90.00 %: level with full training, level with full training of 6 epochs"),
    ],
)
def test_whoever_is_ahead_is_said_to_be(tmp_path, accuracies, said):
    sentence = verdict(tmp_path, *([a] for a in accuracies))
    assert sentence.startswith("Elastic training took 0.51 of full training's time and " + said)
    assert sentence.endswith("full training of 6 epochs instead of 12.")


def test_of_several_seeds_the_medians_count(tmp_path):
    sentence = verdict(tmp_path, (0.9, 0.92, 0.5), (0.8, 0.8, 0.8), (0.1, 0.93, 0.92))
    assert "ends at 92.00 %: 2.00 points above full training, 12.00 points above" in sentence
    assert sentence.endswith("instead of 12, medians of 3 seeds.")


def test_what_the_solved_head_has_comes_first(tmp_path):
    folders = {name: str(tmp_path / name) for name in ("full", "short", "elastic")}
    for name in folders:
        finished(tmp_path / name, 6 if name == "short" else 12, 0.9, 50.0)
    run = RunFolder(folders["elastic"])
    lines = run.metrics_path.read_text()
    run.metrics_path.write_text(json.dumps({"epoch": 0, "test_accuracy": 0.75}) + "\n" + lines)
    arguments = [part for name, folder in folders.items() for part in (f"--{name}", folder)]
    done = subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True)
    assert done.stdout.startswith("The solved head alone has 75.00 %. Elastic training took 1.00"), done


def test_a_run_that_did_not_finish_is_named(tmp_path):
    arguments = ["--full", "a", "--short", "b", "--elastic", "c"]
    done = subprocess.run([sys.executable, SCRIPT, *arguments], cwd=tmp_path, capture_output=True, text=True)
    assert (
        done.returncode == 2
        and "a has no summary.json: the run did not finish" in done.stderr
        and "Traceback" not in done.stderr
    )
