"""The table of runs: what was asked, and means with their deviations."""

import re

from elastictrainer.plotting import table
from run_builders import make_run


def test_the_table_has_what_was_asked_and_got(runs):
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


def test_a_run_that_was_not_evaluated_has_no_accuracy(runs):
    summary = runs[0].summary()
    del summary["accuracy"]
    runs[0].write_summary(summary)
    assert re.search(r"full +- +0.510 +- +200.0 s", table.text(runs).splitlines()[1])
    assert "accuracy" not in table.text(runs[:1])
