"""What every picture shares: a display-less backend, colours, labels, and writing figure and data."""

import csv
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Union

import matplotlib

from elastictrainer.errors import UsageError
from elastictrainer.runs.files import written_beside
from elastictrainer.runs.run_folder import RunFolder

matplotlib.use("Agg")
from matplotlib import pyplot

# Okabe and Ito's colours: told apart by colour-blind readers.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vPX"
LINES = ("-", "--", ":")  # the next where the colours are used up
UNCHOSEN = "#eeeeee"
FORMATS = (".png", ".pdf", ".svg")


class Drawing(NamedTuple):
    """A figure, and the data drawn in it: one dict per point, bar or cell."""

    figure: Any
    rows: List[Dict[str, Any]]


def save(drawing: Drawing, path: Union[str, Path]) -> None:
    """Write a figure in the format its file ending says; UsageError for another ending."""
    if Path(path).suffix.lower() not in FORMATS:
        raise UsageError(f"cannot draw into {path}; valid endings: {' '.join(FORMATS)}.")
    with written_beside(path) as beside:
        drawing.figure.savefig(beside, dpi=150)
    pyplot.close(drawing.figure)


def save_data(drawing: Drawing, path: Union[str, Path]) -> None:
    """Write the data of a drawing as CSV, a header first."""
    with written_beside(path) as beside, open(beside, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(drawing.rows[0]) if drawing.rows else [])
        writer.writeheader()
        writer.writerows(drawing.rows)


def label(run: RunFolder) -> str:
    """The scheme of a run, with rho where it has one."""
    found = run.config()
    return (
        f"{found['scheme']}, rho {found['rho']:g}"
        if found["scheme"].startswith("elastic")
        else found["scheme"]
    )


def tensor_ticks(axes: Any, names: List[str]) -> None:
    """Some layer names along the horizontal axis."""
    every = max(1, -(-len(names) // 8))
    places = list(range(0, len(names), every))
    axes.set_xticks(places, [names[i].split("/")[0] for i in places], rotation=30, ha="right", fontsize=7)
