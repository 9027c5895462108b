"""The numbers of figures beside the paper's: means over seeds, and each device by itself."""

import json
import re

import pytest

from run_builders import make_run

pytest.importorskip("tensorflow")

SETTINGS = {"model": "resnet50", "dataset": "caltech_birds2011", "activation_cache": "off", "epochs": 12}


@pytest.fixture
def paper_run(tmp_path):
    """A function that makes a run of a scheme as the paper's, with its seconds and accuracy."""

    def make(name, scheme, seconds, accuracy, **settings):
        run = make_run(tmp_path / name, scheme, seconds, accuracy)
        run.write_config({**run.config(), **SETTINGS, **settings})
        run.write_summary({**run.summary(), "validation_seconds": 10.0})
        return run

    return make


@pytest.fixture
def table(script, tmp_path, capsys):
    """A function that returns what the script prints for a figure and runs, and what it writes."""

    def run(figure, *runs):
        script("figure_numbers").report(figure, [str(run.path) for run in runs], str(tmp_path / "t.json"))
        return capsys.readouterr().out, json.loads((tmp_path / "t.json").read_text())

    return run


def test_seeds_are_one_row_and_both_devices_are_held_against_it(table, paper_run):
    seeds = paper_run("a", "elastic", 100.0, 0.66, seed=0), paper_run("b", "elastic", 110.0, 0.70, seed=1)
    said, written = table("figure17", paper_run("full", "full", 200.0, 0.68), *seeds)
    full, elastic = written["rows"]
    assert elastic["runs"] == 2 and elastic["accuracy"] == pytest.approx(68)
    assert elastic["accuracy_deviation"] == pytest.approx(8**0.5)
    assert elastic["ratio"] == pytest.approx(105 / 200)
    assert elastic["paper"]["Jetson TX2"]["ratio"] == pytest.approx(1.26 / 2.95)
    assert "(2 runs)" in said and "68.0 ± 2.8 %" in said
    tx2 = "Jetson TX2: 69 %, 1.26 h, 380 TFLOPs, .* 0.427, not within 10 %"
    assert re.search(tx2, said)
    assert re.search("Raspberry Pi 4B: 68.5 %, 18.7 h, .* 0.530, within 10 %", said)
    assert full["paper"]["Raspberry Pi 4B"] == {"hours": 35.3, "ratio": 1.0}


def test_figure_16_and_runs_that_the_paper_has_not_are_held_against_nothing(table, paper_run):
    said, written = table("figure16", paper_run("full", "full", 200.0, 0.68, dataset="oxford_iiit_pet"))
    assert written["rows"][0]["paper"] == {} and "no number" in said and "Raspberry Pi 4B" in said
    short = paper_run("short", "full", 100.0, 0.6, epochs=6)
    cached = paper_run("cached", "elastic", 100.0, 0.6, activation_cache="auto")
    assert [row["paper"] for row in table("figure17", short, cached)[1]["rows"]] == [{}, {}]


def test_runs_that_validate_reach_a_target_by_their_validation_accuracy(table, paper_run):
    runs = [paper_run("elastic", "elastic", 100.0, 0.7), paper_run("full", "full", 200.0, 0.7)]
    for run, seconds in zip(runs, (50.0, 100.0)):
        lines = run.metrics()
        run.metrics_path.write_text("")
        for k, line in enumerate(lines, 1):
            line.update(test_accuracy=None, val_accuracy=0.7, train_seconds_total=seconds * k)
            run.add_metrics(line)
    said, written = table("table2", *runs)
    reached = [(row["elastic_s"], row["baseline_s"]) for row in written["speedups"] if row["target"] == 68]
    assert reached == [(50.0, 100.0)], said
