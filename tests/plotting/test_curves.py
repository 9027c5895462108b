"""Curves show what the metrics of runs say."""

import numpy as np
import pytest

from elastictrainer import UsageError
from elastictrainer.plotting.curves import curves
from run_builders import make_run


@pytest.mark.parametrize(
    "x, values", [("time", [200 / 3, 400 / 3, 200]), ("epochs", [1, 2, 3]), ("flops", [1, 2, 3])]
)
def test_curves_draw_the_metrics(runs, x, values):
    drawn = curves(runs, x, "accuracy")
    lines = drawn.figure.axes[0].get_lines()
    assert [line.get_label() for line in lines] == ["full", "elastic, rho 0.5 (a)", "elastic, rho 0.5 (b)"]
    np.testing.assert_allclose(lines[0].get_xdata(), values)
    np.testing.assert_allclose(lines[0].get_ydata(), [28, 56, 84])
    assert [row[x] for row in drawn.rows[:3]] == pytest.approx(values)


def test_epochs_that_were_not_evaluated_are_no_points(tmp_path):
    run = make_run(tmp_path / "seldom")
    first, *others = run.metrics()
    run.metrics_path.write_text("")
    for record in ({**first, "test_accuracy": None}, *others):
        run.add_metrics(record)
    (line,) = curves([run], "epochs", "accuracy").figure.axes[0].get_lines()
    assert line.get_xdata().tolist() == [2, 3]
    run.metrics_path.write_text("")
    run.add_metrics({**first, "test_accuracy": None})
    with pytest.raises(UsageError, match="seldom .*accuracy"):
        curves([run], "epochs", "accuracy")


def test_long_runs_are_drawn_in_hours_and_their_data_in_seconds(tmp_path):
    drawn = curves([make_run(tmp_path / "long", seconds=36_000.0)])
    axes = drawn.figure.axes[0]
    assert axes.get_xlabel().startswith("training time (h)")
    assert 10 < axes.xaxis.get_view_interval()[1] < 12
    assert drawn.rows[-1]["time"] == 36_000


def test_the_title_names_what_is_drawn_and_of_what(runs):
    for run in runs:
        run.write_config({**run.config(), "model": "tiny"})
    assert curves(runs, "epochs", "loss").figure.axes[0].get_title() == "Test loss over epochs\ntiny on birds"


def test_more_schemes_of_ones_own_than_colours_are_told_apart(tmp_path):
    drawn = curves([make_run(tmp_path / str(k), f"mine{k}") for k in range(9)])
    lines = drawn.figure.axes[0].get_lines()
    assert len({(line.get_color(), line.get_marker(), line.get_linestyle()) for line in lines}) == 9


def test_curves_need_every_value_and_a_known_quantity(runs):
    runs[1].add_metrics({"epoch": 4, "train_seconds_total": 9.0, "test_accuracy": 0.5, "test_loss": 1.0})
    with pytest.raises(UsageError, match=f"{runs[1].path} has no flops"):
        curves(runs, "flops")
    with pytest.raises(UsageError, match="unknown --x 'hours'"):
        curves(runs, "hours")
    with pytest.raises(UsageError, match="unknown --y 'energy'"):
        curves(runs, "time", "energy")
