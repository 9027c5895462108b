"""The table of runs: means, deviations and ratios."""

import re

import pytest

from elastictrainer.plotting import table
from run_builders import make_run


def test_the_brief_table_has_what_was_asked_and_got(runs):
    heading, full, elastic = table.text(runs).splitlines()
    assert re.split("  +", heading) == [
        "run",
        "model",
        "scheme",
        "rho asked",
        "rho got",
        "accuracy",
        "training time",
    ]
    assert re.split("  +", full) == ["full", "script>", "full", "-", "0.510", "84.00 %", "200.0 s"]
    assert re.split("  +", elastic)[2:] == [
        "elastic",
        "0.50",
        "0.510 ± 0.000",
        "81.00 ± 1.41 %",
        "105.0 ± 7.1 s",
    ]
    assert elastic.startswith("2 seeds") and table.text(runs[1:2]).splitlines()[1].startswith("a ")
    assert "rho asked" not in table.text(runs[:1])  # full training takes no rho


def test_long_times_are_in_hours(tmp_path):
    run = make_run(tmp_path / "long", seconds=12_345.6)
    assert table.text([run]).endswith(" 3.4 h")


def test_the_verbose_table(runs):
    said = table.text(runs, True).splitlines()
    assert re.search(r"full +84.00 % +84.00 % +200.0 +1.000", said[1])
    expected = (
        r"elastic, rho 0.5 \(2 runs\) +81.00 ± 1.41 % +81.00 ± 1.41 % +105.0 ± 7.1 +0.525 ± 0.035 "
        r"+0.510 ± 0.000 +0.500 ± 0.000 +1.9 ± 0.1 %"
    )
    assert re.fullmatch(expected, said[2])
    assert re.search(
        r"elastic, rho 0.5 +80.00 % +80.00 % +100.0 +0.510 +0.500 +2.0 %",
        table.text(runs[1:2], True).splitlines()[1],
    )


def test_columns_without_a_value_are_left_out(runs):
    assert "replayed" not in table.text(runs, True).splitlines()[0]
    assert "ratio" not in table.text(runs[1:2], True).splitlines()[0]
    recorded = {"replayed_share": 0.75, "recorded_bytes": 150_400_000}
    runs[1].write_summary({**runs[1].summary(), **recorded})
    heading, full, elastic = table.text(runs, True).splitlines()[:3]
    assert re.search("replayed +recorded MB +selecting$", heading)
    assert re.search(" - +- +1.0 %$", full)
    assert re.search(" 75 % +150 +1.9 ± 0.1 %$", elastic)


def test_a_ratio_is_to_full_training_of_the_same_model(tmp_path):
    runs = [
        make_run(tmp_path / f"{scheme}-{model}", scheme, seconds)
        for scheme, model, seconds in (("full", "a", 100.0), ("elastic", "b", 90.0), ("full", "b", 300.0))
    ]
    for run in runs:
        run.write_config({**run.config(), "model": run.path.name.split("-")[1]})
    assert [row["ratio"] for row in table.rows(runs)] == [1.0, pytest.approx(0.3), 1.0]


def test_a_run_that_was_not_evaluated_has_no_accuracy(runs):
    summary = runs[0].summary()
    del summary["accuracy_best"], summary["accuracy_last"]
    runs[0].write_summary(summary)
    assert re.search(r"full +- +- +200.0 +1.000", table.text(runs, True).splitlines()[1])


def test_times_of_two_devices_have_no_ratio(tmp_path):
    full, elastic = (
        make_run(tmp_path / name, scheme, seconds)
        for name, scheme, seconds in (("full", "full", 9000.0), ("elastic", "elastic", 300.0))
    )
    assert [row["ratio"] for row in table.rows([full, elastic])] == [1.0, pytest.approx(1 / 30)]
    elastic.write_environment({**elastic.environment(), "device": "a laptop"})
    assert [row["ratio"] for row in table.rows([full, elastic])] == [1.0, None]
