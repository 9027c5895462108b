"""Maps of what each selection of a run chose, and of the importance it was based on."""

import numpy as np
import pytest

from elastictrainer import UsageError
from elastictrainer.plotting import selections


def test_selection_and_importance_are_maps_of_tensors_and_intervals(runs):
    drawn = selections.selection(runs[1])
    cells = drawn.figure.axes[0].images[0].get_array()
    assert cells.shape == (2, 12)
    np.testing.assert_array_equal(
        ~np.ma.getmaskarray(np.ma.masked_invalid(cells)), [[False] * 11 + [True], [False] * 9 + [True] * 3]
    )
    assert sum(row["selected"] for row in drawn.rows) == 4
    drawn = selections.importance(runs[1])
    cells = np.ma.masked_invalid(drawn.figure.axes[0].images[0].get_array())
    assert np.ma.getmaskarray(cells)[:, :3].tolist() == [[True, True, False]] * 2 and cells[0, 11] == 1
    with pytest.raises(UsageError, match="no selection"):
        selections.selection(runs[0])


def test_the_legend_says_what_grey_is_and_the_title_whose_run_it_is(runs):
    runs[1].write_config({**runs[1].config(), "model": "tiny"})
    for draw, grey in ((selections.selection, "not trained"), (selections.importance, "zero or negative")):
        axes = draw(runs[1]).figure.axes[0]
        (words,) = axes.get_legend().get_texts()
        assert words.get_text().startswith(grey)
        (patch,) = axes.get_legend().get_patches()
        grey_cells = axes.images[0].cmap.get_bad()
        np.testing.assert_allclose(patch.get_facecolor(), grey_cells)
        assert "elastic, rho 0.5\ntiny on birds, abacus" in axes.get_title()
