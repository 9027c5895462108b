"""Pictures of an evaluation: the confusion matrix, and a sheet of the worst mistakes."""

import textwrap
from pathlib import Path

import numpy as np

from elastictrainer.data.splits import decode_all
from elastictrainer.experiment.scoring import Scores
from elastictrainer.plotting.drawing import Drawing, cut_to, evenly_spaced, pyplot

_NUMBERED = 25  # classes, up to which each cell has its number
_NAMED = 60  # classes, up to which each row and column has its name
_SHEET = (6, 4)  # pictures side by side, rows
_SIDE = 160  # pixels of a picture on the sheet
_WRONG = "#b3261e"  # dark enough to be read in small letters
_LETTERS = 22  # in a line below a picture


def confusion(scores: Scores) -> Drawing:
    """Draw the confusion matrix: true classes (rows), predicted ones (columns), shaded by the row's share."""
    counts, names = scores.confusion, list(scores.class_names)
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    side = float(np.clip(0.34 * len(names) + 2.5, 4.5, 14))
    figure, axes = pyplot.subplots(figsize=(side + 1, side))
    image = axes.imshow(share, cmap="Blues", vmin=0, vmax=1)
    figure.colorbar(image, ax=axes, label="share of the images of the class", shrink=0.7)
    if len(names) <= _NUMBERED:
        for row, column in zip(*np.nonzero(counts)):
            colour = "white" if share[row, column] > 0.5 else "black"
            axes.text(column, row, counts[row, column], ha="center", va="center", fontsize=7, color=colour)
    ticks = evenly_spaced(len(names), _NAMED)
    shown = [cut_to(names[k], 28) for k in ticks]
    axes.set_xticks(ticks, shown, rotation=90)
    axes.set_yticks(ticks, shown)
    axes.set_xlabel("taken for")
    axes.set_ylabel("class")
    axes.set_title(f"{100 * scores.accuracy:.1f} % of {scores.data} right\n{_model(scores)}")
    return Drawing(figure, [])  # et-evaluate writes the matrix as confusion.csv


def mistakes(scores: Scores) -> Drawing:
    """Draw a sheet of misclassified images, lowest probability of the true class first.

    Below each picture: its class and, in colour, what it was taken for, with the probabilities of both.
    """
    columns, lines = _SHEET
    worst = scores.worst(columns * lines)
    chosen = np.isin(np.arange(len(scores.labels)), worst)
    pictures = dict(zip(np.flatnonzero(chosen), decode_all(scores.data.split.subset(chosen), (_SIDE, _SIDE))))
    count = max(1, -(-len(worst) // columns))
    size = (1.75 * columns, 2.25 * count + 0.5)
    figure, axes = pyplot.subplots(count, columns, figsize=size, squeeze=False)
    for cell in axes.flat:
        cell.set_axis_off()
    for cell, k in zip(axes.flat, worst):
        cell.imshow(pictures[k])
        name, other = (
            _in_lines(scores.class_names[i], scores.probabilities[k][i])
            for i in (scores.labels[k], scores.predicted[k])
        )
        cell.set_title(name, fontsize=7, pad=3)
        words = cell.text(0.5, -0.04, f"taken for {other}", transform=cell.transAxes, color=_WRONG)
        words.set(ha="center", va="top", fontsize=7)
    total = int((scores.predicted != scores.labels).sum())
    figure.suptitle(f"the worst {len(worst)} of {total} mistakes on {scores.data}\n{_model(scores)}")
    return Drawing(figure, [])  # et-evaluate writes all predictions as predictions.csv


def _model(scores: Scores) -> str:
    """Return the file that the classifier is from, and the folder that it is in."""
    return "/".join(Path(scores.model).parts[-2:])


def _in_lines(name: str, probability: float) -> str:
    return "\n".join(textwrap.wrap(f"{name} ({100 * probability:.0f} %)", _LETTERS)[:2])
