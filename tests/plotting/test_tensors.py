"""The picture of a profile shows its times, the map of selections what each of them chose."""

import numpy as np
import pytest

from elastictrainer import UsageError
from elastictrainer.plotting import drawing, tensors
from elastictrainer.profiler.cost_groups import CostGroups
from elastictrainer.profiler.memory import StepMemory
from run_builders import NAMES, make_profile


def test_times_add_up_to_the_step_and_memory_is_beside_them_where_the_profile_has_it():
    profile = make_profile()
    held = CostGroups.prefixes(np.ones(12))  # the first tensor holds all, the last one what is its own
    nothing = CostGroups.singletons(np.zeros(12))
    profile.memory = StepMemory(held, nothing, 12.0, 0.0, 99.0, 4, nothing)
    drawn = tensors.by_layer(profile)
    time, memory = drawn.figure.axes[1].get_lines()
    assert (time.get_label(), memory.get_label()) == ("time", "memory")
    np.testing.assert_allclose(memory.get_ydata()[[0, -1]], [100, 100 * 13 / 24])
    assert [row["tensor"] for row in drawn.rows] == NAMES[::-1]
    assert sum(row["t_dy_ms"] + row["t_dw_ms"] for row in drawn.rows) == pytest.approx(18)


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


def test_a_selection_is_a_row_and_a_tensor_a_column(runs):
    runs[1].write_config({**runs[1].config(), "model": "tiny"})
    drawn = tensors.selection(runs[1])
    axes = drawn.figure.axes[0]
    cells = np.ma.getmaskarray(np.ma.masked_invalid(axes.images[0].get_array()))
    np.testing.assert_array_equal(~cells, [[False] * 11 + [True], [False] * 9 + [True] * 3])
    assert sum(row["selected"] for row in drawn.rows) == 4
    (words,), (patch,) = axes.get_legend().get_texts(), axes.get_legend().get_patches()
    assert words.get_text().startswith("not trained")
    np.testing.assert_allclose(patch.get_facecolor(), axes.images[0].cmap.get_bad())
    assert "elastic, rho 0.5\ntiny on birds" in axes.get_title()
    with pytest.raises(UsageError, match="no selection"):
        tensors.selection(runs[0])


@pytest.mark.parametrize("count, expected", [(3, ["c0", "c1", "c2"]), (25, [f"c{3 * k}" for k in range(9)])])
def test_at_most_twelve_layer_names_are_on_the_axis(count, expected):
    _, axes = drawing.pyplot.subplots()
    tensors.layer_ticks(axes, [tensors.layer_of(f"c{k}/kernel") for k in range(count)])
    assert [text.get_text() for text in axes.get_xticklabels()] == expected
