"""The picture of a profile shows its times, the map of selections what each of them chose."""

import numpy as np
import pytest

from elastictrainer import UsageError
from elastictrainer.plotting import drawing, tensors
from elastictrainer.profiler.cost_groups import CostGroups
from elastictrainer.profiler.memory import StepMemory
from run_builders import NAMES, make_profile


def test_times_add_up_to_the_step():
    rows = tensors.by_layer(make_profile()).rows
    assert [row["tensor"] for row in rows] == NAMES[::-1]
    assert sum(row["t_dy_ms"] + row["t_dw_ms"] for row in rows) == pytest.approx(18)


def test_a_profile_is_drawn_by_layer_from_the_input_to_the_output():
    profile = make_profile()
    profile.names = tuple(f"layer_{i // 2}/{('kernel', 'bias')[i % 2]}" for i in range(12))
    drawn = tensors.by_layer(profile)
    bars, from_here = drawn.figure.axes
    assert [text.get_text() for text in from_here.get_xticklabels()] == [f"layer_{k}" for k in range(6)]
    dw_bars = bars.containers[2]
    np.testing.assert_allclose([bar.get_height() for bar in dw_bars], [2.0] * 6)
    # The last layer: forward 10, dW 2, dy 1 of 28 ms; the first: all.
    shares = from_here.get_lines()[0].get_ydata()
    np.testing.assert_allclose(shares[[0, -1]], [100, 100 * 13 / 28])
    assert [words.get_text().split(" (")[0] for words in bars.get_legend().get_texts()] == [
        "forward pass",
        "gradient passed on to the layers before",
        "gradient of its own weights, and their update",
    ]
    assert "28 ms " in bars.get_title() and bars.get_title().endswith("\ntiny <b>&, abacus")
    assert {row["layer"] for row in drawn.rows} == {f"layer_{k}" for k in range(6)}


def test_memory_is_drawn_beside_time_where_the_profile_has_it():
    profile = make_profile()
    held = CostGroups.prefixes(np.ones(12))  # the first tensor holds all, the last one what is its own
    nothing = CostGroups.singletons(np.zeros(12))
    profile.memory = StepMemory(held, nothing, 12.0, 0.0, 99.0, 4, nothing)
    time, memory = tensors.by_layer(profile).figure.axes[1].get_lines()
    assert (time.get_label(), memory.get_label()) == ("time", "memory")
    np.testing.assert_allclose(memory.get_ydata()[[0, -1]], [100, 100 * 13 / 24])


def test_a_selection_is_a_row_and_a_tensor_a_column(runs):
    drawn = tensors.selection(runs[1])
    cells = drawn.figure.axes[0].images[0].get_array()
    assert cells.shape == (2, 12)
    np.testing.assert_array_equal(
        ~np.ma.getmaskarray(np.ma.masked_invalid(cells)), [[False] * 11 + [True], [False] * 9 + [True] * 3]
    )
    assert sum(row["selected"] for row in drawn.rows) == 4
    with pytest.raises(UsageError, match="no selection"):
        tensors.selection(runs[0])


def test_the_legend_says_what_grey_is_and_the_title_whose_run_it_is(runs):
    runs[1].write_config({**runs[1].config(), "model": "tiny"})
    axes = tensors.selection(runs[1]).figure.axes[0]
    (words,) = axes.get_legend().get_texts()
    assert words.get_text().startswith("not trained")
    (patch,) = axes.get_legend().get_patches()
    np.testing.assert_allclose(patch.get_facecolor(), axes.images[0].cmap.get_bad())
    assert "elastic, rho 0.5\ntiny on birds" in axes.get_title()


@pytest.mark.parametrize("count, expected", [(3, ["c0", "c1", "c2"]), (25, [f"c{3 * k}" for k in range(9)])])
def test_at_most_twelve_layer_names_are_on_the_axis(count, expected):
    _, axes = drawing.pyplot.subplots()
    tensors.layer_ticks(axes, [tensors.layer_of(f"c{k}/kernel") for k in range(count)])
    assert [text.get_text() for text in axes.get_xticklabels()] == expected
