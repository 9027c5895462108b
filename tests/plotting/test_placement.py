"""Words beside points cover neither one another nor a point."""

import itertools

import numpy as np
from matplotlib.transforms import Bbox

from elastictrainer.plotting.drawing import pyplot
from elastictrainer.plotting.placement import place


def test_words_of_crowded_points_are_apart_and_inside():
    figure, axes = pyplot.subplots(layout="constrained")
    points = [(10 + 0.3 * k, 86 + 0.2 * (k % 3)) for k in range(6)] + [(20.0, 88.0)]
    axes.plot(*zip(*points), "o")
    annotations = place(axes, [(f"rho 0.{k}", *at) for k, at in enumerate(points)], [], 8)
    figure.canvas.draw()
    boxes = [annotation.get_window_extent() for annotation in annotations]
    for one, other in itertools.combinations(boxes, 2):
        assert Bbox.intersection(one, other) is None
    inside = axes.get_window_extent()
    assert all(inside.contains(*box.min) and inside.contains(*box.max) for box in boxes)
    assert not any(box.contains(*axes.transData.transform(at)) for box in boxes for at in points)


def test_a_lonely_word_stands_below_right_of_its_point():
    _, axes = pyplot.subplots(layout="constrained")
    axes.plot([0, 10], [0, 10], "o")
    (annotation,) = place(axes, [("here", 5, 5)], [], 8)
    np.testing.assert_array_equal(annotation.get_position(), (7, -7))
