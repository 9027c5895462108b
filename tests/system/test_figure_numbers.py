"""The numbers of figures beside the paper's: means over seeds, and each device by itself."""

import json
import re

import pytest

from run_builders import make_run

pytest.importorskip("tensorflow")

SETTINGS = {"model": "resnet50", "dataset": "caltech_birds2011", "activation_cache": "off", "epochs": 12}


def paper_run(folder, scheme, seconds, accuracy, **settings):
    run = make_run(folder, scheme, seconds, accuracy)
    run.write_config({**run.config(), **SETTINGS, **settings})
    run.write_summary({**run.summary(), "validation_seconds": 10.0})
    return str(folder)


@pytest.fixture
def table(script, tmp_path, capsys):
    """A function that returns what the script prints for a figure and runs, and the rows that it writes."""

    def run(figure, *runs):
        script("figure_numbers").report(figure, list(runs), str(tmp_path / "t.json"))
        return capsys.readouterr().out, json.loads((tmp_path / "t.json").read_text())["rows"]

    return run


def test_seeds_are_one_row_and_both_devices_are_held_against_it(table, tmp_path):
    runs = [
        paper_run(tmp_path / "full", "full", 200.0, 0.68),
        paper_run(tmp_path / "a", "elastic", 100.0, 0.66, seed=0),
        paper_run(tmp_path / "b", "elastic", 110.0, 0.70, seed=1),
    ]
    said, (full, elastic) = table("figure17", *runs)
    assert elastic["runs"] == 2 and elastic["accuracy"] == pytest.approx(68)
    assert elastic["accuracy_deviation"] == pytest.approx(8**0.5)
    assert elastic["ratio"] == pytest.approx(105 / 200)
    assert elastic["paper"]["Jetson TX2"]["ratio"] == pytest.approx(1.26 / 2.95)
    assert "(2 runs)" in said and "68.0 ± 2.8 %" in said
    tx2 = "Jetson TX2: 69 %, 1.26 h, 380 TFLOPs, .* 0.427, not within 10 %"
    assert re.search(tx2, said)
    assert re.search("Raspberry Pi 4B: 68.5 %, 18.7 h, .* 0.530, within 10 %", said)
    assert full["paper"]["Raspberry Pi 4B"] == {"hours": 35.3, "ratio": 1.0}


def test_figure_16_and_runs_that_the_paper_has_not_are_held_against_nothing(table, tmp_path):
    pet = {"dataset": "oxford_iiit_pet"}
    said, rows = table("figure16", paper_run(tmp_path / "full", "full", 200.0, 0.68, **pet))
    assert rows[0]["paper"] == {} and "no number" in said and "Raspberry Pi 4B" in said
    others = [
        paper_run(tmp_path / "short", "full", 100.0, 0.6, epochs=6),
        paper_run(tmp_path / "activation_cache", "elastic", 100.0, 0.6, activation_cache="auto"),
    ]
    _, rows = table("figure17", *others)
    assert [row["paper"] for row in rows] == [{}, {}]


def test_runs_that_validate_reach_a_target_by_their_validation_accuracy(table, tmp_path):
    runs = []
    for scheme, seconds in (("elastic", 50.0), ("full", 100.0)):
        folder = tmp_path / scheme
        runs.append(paper_run(folder, scheme, 2 * seconds, 0.7))
        lines = [
            {**line, "test_accuracy": None, "val_accuracy": 0.7, "train_seconds_total": seconds * k}
            for k, line in enumerate(map(json.loads, (folder / "metrics.jsonl").read_text().splitlines()), 1)
        ]
        (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    said, _ = table("table2", *runs)
    speedups = json.loads((tmp_path / "t.json").read_text())["speedups"]
    reached = [(row["elastic_s"], row["baseline_s"]) for row in speedups if row["target"] == 68]
    assert reached == [(50.0, 100.0)], said
