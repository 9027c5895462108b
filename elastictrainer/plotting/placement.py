"""Words next to points that cover neither one another nor a point."""

from typing import Any, List, Sequence, Tuple

import numpy as np
from matplotlib.transforms import Bbox

# Where a word may stand, in points from its own: the usual place first, the farther ones last.
_PLACES = [
    (distance * x, distance * y)
    for distance in (7, 14, 24, 36)
    for x, y in ((1, -1), (1, 1), (-1, -1), (-1, 1), (1, 0), (-1, 0), (0, -1), (0, 1))
]


def place(
    axes: Any, words: Sequence[Tuple[str, float, float]], taken: Sequence[Tuple[float, float]], size: float
) -> List[Any]:
    """Write each (text, x, y) of `words` next to its point, where nothing else is; return the annotations.

    Call it when the rest is drawn: it measures the words in the final layout, and fixes that layout.

    Args:
        axes: with their limits set.
        words: in the data coordinates of `axes`.
        taken: other points that no word may cover.
        size: of the letters, in points.
    """
    figure = axes.figure
    figure.canvas.draw()  # lays out
    points = [*taken, *((x, y) for _, x, y in words)]
    centres = axes.transData.transform(np.array(points, float).reshape(-1, 2))
    radius = figure.dpi / 72 * 4  # of a marker
    covered = np.hstack([centres - radius, centres + radius])  # (boxes, 4): left, bottom, right, top
    inside = axes.get_window_extent()
    annotations = []
    for text, x, y in words:
        annotation = axes.annotate(text, (x, y), xytext=(0, 0), textcoords="offset points", fontsize=size)
        best = min(_PLACES, key=lambda at: _cost(annotation, at, covered, inside))
        _move(annotation, best)
        covered = np.vstack([covered, annotation.get_window_extent().extents])
        if np.hypot(*best) > 20:  # far away: a thread back to its point
            axes.annotate(
                "",
                (x, y),
                xytext=best,
                textcoords="offset points",
                arrowprops={"arrowstyle": "-", "color": "#999999", "linewidth": 0.6},
            )
        annotations.append(annotation)
    return annotations


def _move(annotation: Any, at: Tuple[float, float]) -> None:
    x, y = at
    annotation.set_position(at)
    annotation.set_horizontalalignment("center" if not x else "left" if x > 0 else "right")
    annotation.set_verticalalignment("center" if not y else "bottom" if y > 0 else "top")


def _cost(annotation: Any, at: Tuple[float, float], covered: np.ndarray, inside: Bbox) -> float:
    """Return the area that the words would cover there, in pixels; outside the axes all of theirs, thrice."""
    _move(annotation, at)
    words = annotation.get_window_extent()
    outside = words.width * words.height - _shared(words, np.array([inside.extents]))[0]
    return float(_shared(words, covered).sum() + 3 * outside)


def _shared(words: Bbox, boxes: np.ndarray) -> np.ndarray:
    """Return (N,): the area that `words` has in common with each of `boxes` (N, 4)."""
    corner = np.minimum(words.max, boxes[:, 2:]) - np.maximum(words.min, boxes[:, :2])
    return np.maximum(corner, 0).prod(axis=1)
