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
    _, families = axes.get_legend_handles_labels()
    assert families == ["full", "elastic (2 seeds)"]
    means = axes.containers[1].lines[0]
    np.testing.assert_allclose(means.get_xydata(), [[105, 81]])
    assert axes.get_xlim()[0] == 0


def test_a_scheme_without_reuse_is_a_family_of_its_own_and_shorter_training_is_not(tmp_path):
    runs = [
        with_settings(make_run(tmp_path / "f12", "full", 200.0, 0.84), epochs=12, reuse="auto"),
        with_settings(make_run(tmp_path / "f6", "full", 100.0, 0.80), epochs=6, reuse="auto"),
        with_settings(make_run(tmp_path / "e"), epochs=12, reuse="auto"),
        with_settings(make_run(tmp_path / "off", seconds=101.0), epochs=12, reuse="off"),
    ]
    axes = tradeoff(runs).figure.axes[0]
    assert axes.get_legend_handles_labels()[1] == ["full", "elastic", "elastic, reuse off"]
    np.testing.assert_allclose(axes.containers[0].lines[0].get_xydata(), [[100, 80], [200, 84]])
    assert [text.get_text() for text in axes.texts] == ["6 epochs", "12 epochs", "rho 0.5", "rho 0.5"]
    hollow = [container.lines[0].get_markerfacecolor() == "white" for container in axes.containers]
    assert hollow == [False, False, True]


def test_seeds_have_bars_of_accuracy_and_of_time(runs):
    axes = tradeoff(runs).figure.axes[0]
    full, elastic = axes.containers
    across, along = (bars.get_segments()[0] for bars in elastic.lines[2])
    seconds, percent = np.std([100, 110], ddof=1), np.std([80, 82], ddof=1)
    np.testing.assert_allclose(across, [(105 - seconds, 81), (105 + seconds, 81)])
    np.testing.assert_allclose(along, [(105, 81 - percent), (105, 81 + percent)])
    assert not full.lines[2] and "standard deviation" in axes.get_legend().get_title().get_text()


def test_the_axis_above_is_the_share_of_full_training(runs):
    drawn = tradeoff(runs)
    drawn.figure.canvas.draw()
    (above,) = drawn.figure.axes[0].child_axes
    np.testing.assert_allclose(above.get_xlim(), np.array(drawn.figure.axes[0].get_xlim()) / 200 * 100)
    assert not tradeoff(runs[1:]).figure.axes[0].child_axes


def test_models_are_lines_of_their_own(tmp_path):
    runs = [
        with_settings(make_run(tmp_path / f"{k}{model}", seconds=100.0 + k), model=model, rho=0.5 - k / 10)
        for model in ("a", "b")
        for k in (0, 1)
    ]
    axes = tradeoff(runs).figure.axes[0]
    assert axes.get_legend_handles_labels()[1] == ["elastic, model a", "elastic, model b"]
    assert len({container.lines[0].get_linestyle() for container in axes.containers}) == 2
    words = sorted(text.get_text() for text in axes.texts if text.get_text())
    assert words == ["rho 0.4", "rho 0.4", "rho 0.5", "rho 0.5"]


def test_a_run_that_was_not_evaluated_is_named(runs):
    runs[1].write_summary({**runs[1].summary(), "accuracy_last": None})
    with pytest.raises(UsageError, match=f"{runs[1].path} was not evaluated"):
        tradeoff(runs)
