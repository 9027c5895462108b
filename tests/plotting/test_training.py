"""Curves and bars show what the metrics and summaries of runs say."""

import numpy as np
import pytest

from elastictrainer import UsageError
from elastictrainer.plotting import training
from run_builders import make_run


@pytest.mark.parametrize(
    "x, values", [("time", [200 / 3, 400 / 3, 200]), ("epochs", [1, 2, 3]), ("flops", [1, 2, 3])]
)
def test_curves_draw_the_metrics(runs, x, values):
    drawn = training.curves(runs, x, "accuracy")
    lines = drawn.figure.axes[0].get_lines()
    assert [line.get_label() for line in lines] == ["full", "elastic, rho 0.5 (2 runs)"]
    np.testing.assert_allclose(lines[0].get_xdata(), values)
    np.testing.assert_allclose(lines[0].get_ydata(), [28, 56, 84])
    np.testing.assert_allclose(lines[1].get_xdata(), [35, 70, 105] if x == "time" else values)
    np.testing.assert_allclose(lines[1].get_ydata(), [27, 54, 81])
    deviations = [row["standard_deviation"] for row in drawn.rows]
    assert deviations[:3] == [None] * 3 and deviations[3:] == pytest.approx(
        [2**0.5 / 3, 2 * 2**0.5 / 3, 2**0.5]
    )
    assert [row[x] for row in drawn.rows[:3]] == pytest.approx(values)


def test_epochs_that_were_not_evaluated_are_no_points(tmp_path):
    run = make_run(tmp_path / "seldom")
    first, *others = run.metrics()
    run.metrics_path.write_text("")
    for record in ({**first, "test_accuracy": None}, *others):
        run.add_metrics(record)
    (line,) = training.curves([run], "epochs", "accuracy").figure.axes[0].get_lines()
    assert line.get_xdata().tolist() == [2, 3]
    run.metrics_path.write_text("")
    run.add_metrics({**first, "test_accuracy": None})
    with pytest.raises(UsageError, match="seldom .*accuracy"):
        training.curves([run], "epochs", "accuracy")


@pytest.mark.parametrize(
    "draw, axis", [(training.curves, "xaxis"), (lambda r: training.bars(r, "time"), "yaxis")]
)
def test_long_runs_are_drawn_in_hours_and_their_data_in_seconds(tmp_path, draw, axis):
    drawn = draw([make_run(tmp_path / "long", seconds=36_000.0)])
    axes = drawn.figure.axes[0]
    assert getattr(axes, axis).get_label_text().startswith("training time (h)")
    assert 10 < getattr(axes, axis).get_view_interval()[1] < 12
    assert drawn.rows[-1]["time"] == 36_000


def test_titles_name_model_data_and_device(runs):
    for run in runs:
        run.write_config({**run.config(), "model": "tiny"})
    titles = [training.curves(runs, "epochs", "loss"), training.bars(runs, "memory")]
    assert [drawn.figure.axes[0].get_title() for drawn in titles] == [
        "Test loss over epochs\ntiny on birds, abacus",
        "Peak resident memory\ntiny on birds, abacus",
    ]


def test_words_below_and_above_bars_do_not_run_into_one_another(tmp_path):
    drawn = training.bars(
        [make_run(tmp_path / str(k), f"elastic-{k}-weight-magnitude", accuracy=0.86) for k in range(4)]
    )
    drawn.figure.canvas.draw()
    axes = drawn.figure.axes[0]
    below = [words.get_window_extent() for words in axes.get_xticklabels()]
    assert all(left.x1 < right.x0 for left, right in zip(below, below[1:]))
    assert [words.get_text() for words in axes.texts] == ["86.0"] * 4


def test_more_schemes_of_ones_own_than_colours_are_told_apart(tmp_path):
    drawn = training.curves([make_run(tmp_path / str(k), f"mine{k}") for k in range(9)])
    lines = drawn.figure.axes[0].get_lines()
    assert len({(line.get_color(), line.get_marker(), line.get_linestyle()) for line in lines}) == 9


def test_bars_average_the_same_runs_and_show_their_spread(runs):
    drawn = training.bars(runs, "accuracy")
    assert drawn.rows == [
        {"label": "full", "runs": 1, "accuracy": pytest.approx(84), "standard_deviation": None},
        {
            "label": "elastic, rho 0.5",
            "runs": 2,
            "accuracy": pytest.approx(81),
            "standard_deviation": pytest.approx(2**0.5),
        },
    ]


def test_what_was_not_measured_is_said_and_no_bar_is_drawn(runs):
    figure = training.bars(runs, "energy").figure
    assert [text.get_text() for text in figure.axes[0].texts] == ["not measured"] * 2
    assert not figure.axes[0].patches


def test_curves_need_every_value_and_a_known_quantity(runs):
    runs[1].add_metrics({"epoch": 4, "train_seconds_total": 9.0, "test_accuracy": 0.5, "test_loss": 1.0})
    with pytest.raises(UsageError, match=f"{runs[1].path} has no flops"):
        training.curves(runs, "flops")
    with pytest.raises(UsageError, match="unknown --x 'hours'"):
        training.curves(runs, "hours")
    with pytest.raises(UsageError, match="unknown --y 'loss'"):
        training.bars(runs, "loss")


def test_what_is_lacking_is_what_is_named(runs):
    runs[1].add_metrics({"epoch": 4, "train_seconds_total": 9.0, "test_accuracy": 0.5, "test_loss": 1.0})
    with pytest.raises(UsageError, match="no flops"):
        training.curves(runs, "epochs", "flops")
