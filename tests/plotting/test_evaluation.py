"""Pictures of an evaluation."""

import numpy as np
import pytest

pytest.importorskip("tensorflow")
from elastictrainer.data.splits import ArraySplit
from elastictrainer.experiment.run_images import LabelledImages
from elastictrainer.experiment.scoring import Scores
from elastictrainer.plotting import evaluation
from elastictrainer.plotting.drawing import pyplot


@pytest.fixture
def scores():
    """An image of each of 70 classes, grey by its number; every other one is taken for the next class."""
    count = 70
    images = np.broadcast_to(np.arange(count, dtype=np.uint8)[:, None, None, None], (count, 4, 4, 3))
    labels = np.arange(count)
    said = np.where(labels % 2, labels, labels + 1)
    rows = np.full((count, count), 0.2 / count)
    rows[labels, said] += 0.6 + 0.002 * labels
    rows[labels, labels] += 0.2 - 0.002 * labels  # the last ones are the worst
    names = [f"class {k:02}" for k in range(count)]
    data = LabelledImages("some/data", "test", names, ArraySplit(images, labels))
    return Scores(data, names, labels, rows, "runs/mine/best.keras")


def test_the_confusion_matrix_has_all_that_was_taken_for_anything(scores):
    drawing = evaluation.confusion(scores)
    axes = drawing.figure.axes[0]
    shares = axes.images[0].get_array()
    assert shares.sum() == 70 and shares[4, 5] == 1
    assert axes.get_title() == "50.0 % of 70 test images of data right\nmine/best.keras"
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert len(names) == 35 and names[:2] == ["class 00", "class 02"], "what there is room for"
    pyplot.close(drawing.figure)


def test_the_sheet_has_the_worst_mistakes_with_their_own_pictures(scores):
    drawing = evaluation.mistakes(scores)
    cells = drawing.figure.axes
    assert len(cells) == 24 and [cell.get_title()[:9] for cell in cells[:2]] == ["class 68 ", "class 66 "]
    assert cells[0].texts[0].get_text().startswith("taken for class 69 ")
    shown = [axes.images[0].get_array()[0, 0, 0] for axes in drawing.figure.axes]
    assert shown[:3] == [68, 66, 64], "images are grey by their number"
    pyplot.close(drawing.figure)
