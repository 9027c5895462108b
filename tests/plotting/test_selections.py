"""The map of what each selection of a run chose."""

import numpy as np
import pytest

from elastictrainer import UsageError
from elastictrainer.plotting import selections


def test_a_selection_is_a_row_and_a_tensor_a_column(runs):
    drawn = selections.selection(runs[1])
    cells = drawn.figure.axes[0].images[0].get_array()
    assert cells.shape == (2, 12)
    np.testing.assert_array_equal(
        ~np.ma.getmaskarray(np.ma.masked_invalid(cells)), [[False] * 11 + [True], [False] * 9 + [True] * 3]
    )
    assert sum(row["selected"] for row in drawn.rows) == 4
    with pytest.raises(UsageError, match="no selection"):
        selections.selection(runs[0])


def test_the_legend_says_what_grey_is_and_the_title_whose_run_it_is(runs):
    runs[1].write_config({**runs[1].config(), "model": "tiny"})
    axes = selections.selection(runs[1]).figure.axes[0]
    (words,) = axes.get_legend().get_texts()
    assert words.get_text().startswith("not trained")
    (patch,) = axes.get_legend().get_patches()
    np.testing.assert_allclose(patch.get_facecolor(), axes.images[0].cmap.get_bad())
    assert "elastic, rho 0.5\ntiny on birds, abacus" in axes.get_title()
