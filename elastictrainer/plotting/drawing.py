"""What all pictures share: a backend that needs no display, colours, labels, files of figure and data."""

import csv
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Union

import matplotlib

from elastictrainer.errors import UsageError
from elastictrainer.registry import takes_rho
from elastictrainer.runs.files import written_beside
from elastictrainer.runs.run_folder import RunFolder

matplotlib.use("Agg")
from matplotlib import pyplot

# Okabe and Ito's palette, which colour-blind readers can distinguish.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vPX"
LINES = ("-", "--", ":")  # the next one each time the colours are used up
UNSELECTED = "#eeeeee"
FORMATS = (".png", ".pdf", ".svg")


class Drawing(NamedTuple):
    """A Matplotlib figure, and the data drawn in it: a dict for each point, bar or cell."""

    figure: Any
    rows: List[Dict[str, Any]]


def save(drawing: Drawing, path: Union[str, Path]) -> None:
    """Write the figure in the format that the file's ending names, and close it.

    Raises:
        UsageError: an ending that is not in FORMATS.
    """
    if Path(path).suffix.lower() not in FORMATS:
        raise UsageError(f"cannot draw into {path}; valid endings: {' '.join(FORMATS)}.")
    with written_beside(path) as beside:
        drawing.figure.savefig(beside, dpi=150)
    pyplot.close(drawing.figure)


def save_data(drawing: Drawing, path: Union[str, Path]) -> None:
    """Write the data of a drawing as CSV with a header line."""
    with written_beside(path) as beside, open(beside, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(drawing.rows[0]) if drawing.rows else [])
        writer.writeheader()
        writer.writerows(drawing.rows)


def label(run: RunFolder) -> str:
    """The scheme of a run; of an elastic scheme also rho."""
    settings = run.config()
    if not takes_rho(settings["scheme"]):
        return settings["scheme"]
    return f"{settings['scheme']}, rho {settings['rho']:g}"


def tensor_ticks(axes: Any, names: List[str]) -> None:
    """Put up to eight layer names, evenly spaced, along the horizontal axis.

    Args:
        axes: with tensor i at position i.
        names: (N,) of the tensors, such as "conv1/kernel".
    """
    spacing = max(1, -(-len(names) // 8))
    ticks = list(range(0, len(names), spacing))
    axes.set_xticks(ticks, [names[i].split("/")[0] for i in ticks], rotation=30, ha="right", fontsize=7)
