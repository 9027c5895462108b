"""Accuracy over training time, a point for each run."""

import numpy as np
import pytest

from elastictrainer.errors import UsageError
from elastictrainer.plotting.tradeoff import tradeoff
from run_builders import make_run


def with_settings(run, **settings):
    run.write_config({**run.config(), **settings})
    return run


def test_every_run_is_a_point_and_seeds_a_mean(runs):
    drawn = tradeoff(runs)
    points = sorted((row["train_seconds"], row["accuracy_percent"]) for row in drawn.rows)
    np.testing.assert_allclose(points, [(100, 80), (110, 82), (200, 84)])
    axes = drawn.figure.axes[0]
    assert axes.get_legend_handles_labels()[1] == ["full", "elastic"]
    np.testing.assert_allclose(axes.containers[1].lines[0].get_xydata(), [[105, 81]])
    assert axes.get_xlim()[0] == 0


def test_a_scheme_has_a_colour_and_points_have_notes(tmp_path):
    runs = [
        with_settings(make_run(tmp_path / "f12", "full", 200.0, 0.84), epochs=12, activation_cache="auto"),
        with_settings(make_run(tmp_path / "f6", "full", 100.0, 0.80), epochs=6, activation_cache="auto"),
        with_settings(make_run(tmp_path / "e"), epochs=12, activation_cache="auto"),
        with_settings(make_run(tmp_path / "off", seconds=101.0), epochs=12, activation_cache="off"),
    ]
    axes = tradeoff(runs).figure.axes[0]
    assert axes.get_legend_handles_labels()[1] == ["full", "elastic"]
    notes = ["epochs 12", "epochs 6", "rho 0.5, cache auto", "rho 0.5, cache off"]
    assert [text.get_text() for text in axes.texts] == notes
    assert len({container.lines[0].get_color() for container in axes.containers}) == 2


def test_seeds_have_bars_of_accuracy_and_of_time(runs):
    full, elastic = tradeoff(runs).figure.axes[0].containers
    across, along = (bars.get_segments()[0] for bars in elastic.lines[2])
    seconds, percent = np.std([100, 110], ddof=1), np.std([80, 82], ddof=1)
    np.testing.assert_allclose(across, [(105 - seconds, 81), (105 + seconds, 81)])
    np.testing.assert_allclose(along, [(105, 81 - percent), (105, 81 + percent)])
    assert not full.lines[2]


def test_the_axis_above_is_the_share_of_full_training(runs):
    drawn = tradeoff(runs)
    drawn.figure.canvas.draw()
    (above,) = drawn.figure.axes[0].child_axes
    np.testing.assert_allclose(above.get_xlim(), np.array(drawn.figure.axes[0].get_xlim()) / 200 * 100)
    assert not tradeoff(runs[1:]).figure.axes[0].child_axes


def test_a_run_that_was_not_evaluated_is_named(runs):
    runs[1].write_summary({**runs[1].summary(), "accuracy": None})
    with pytest.raises(UsageError, match=f"{runs[1].path} was not evaluated"):
        tradeoff(runs)
