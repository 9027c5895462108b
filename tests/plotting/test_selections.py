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
    assert np.ma.getmaskarray(cells)[:, :3].tolist() == [[True, True, False]] * 2 and cells[0, 11] == 0
    with pytest.raises(UsageError, match="no selection to draw"):
        selections.selection(runs[0])


def test_a_corrected_selection_is_marked_and_has_no_row_of_importance(runs):
    runs[1].add_selection({"epoch": 1, "selected": [10, 11], "corrected": True, "predicted_ratio": 0.45})
    axes = selections.selection(runs[1]).figure.axes[0]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["1: 0.50", "2: 0.50", "2+: 0.45"]
    assert selections.importance(runs[1]).figure.axes[0].images[0].get_array().shape == (2, 12)
