"""The parts that all pictures share: a backend without a display, labels, files of figure and data."""

from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Union

import matplotlib

from elastictrainer.errors import UsageError
from elastictrainer.plotting.captions import cut_to
from elastictrainer.registry import takes_rho
from elastictrainer.runs.files import atomic_write, write_csv
from elastictrainer.runs.run_folder import RunFolder

matplotlib.use("Agg")
from matplotlib import pyplot

if "text.parse_math" in matplotlib.rcParams:  # since 3.6
    matplotlib.rcParams["text.parse_math"] = False  # a $ in a user's name is a $

UNSELECTED = "#dddddd"
_LAYER_LETTERS = 28
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
    with atomic_write(path) as unfinished:
        drawing.figure.savefig(unfinished, dpi=150)
    pyplot.close(drawing.figure)


def save_data(drawing: Drawing, path: Union[str, Path]) -> None:
    """Write the data of a drawing as CSV with a header line."""
    columns = list(drawing.rows[0]) if drawing.rows else []
    write_csv(path, columns, ([row.get(name) for name in columns] for row in drawing.rows))


def label(run: RunFolder) -> str:
    """Return the scheme of a run; of an elastic scheme also rho."""
    settings = run.config()
    if not takes_rho(settings["scheme"]):
        return settings["scheme"]
    return f"{settings['scheme']}, rho {settings['rho']:g}"


def tensor_ticks(axes: Any, names: List[str]) -> None:
    """Put up to twelve layer names, evenly spaced, along the horizontal axis.

    Args:
        axes: with tensor i at position i.
        names: (N,) of the tensors, such as "conv1/kernel".
    """
    ticks = evenly_spaced(len(names), 12)
    layers = [short_layer(names[i].rpartition("/")[0] or names[i]) for i in ticks]
    axes.set_xticks(ticks, layers, rotation=30, ha="right", fontsize=7)


def evenly_spaced(count: int, most: int) -> List[int]:
    """Return at most `most` of the numbers below `count`, from 0 on."""
    return list(range(0, count, max(1, -(-count // most))))


def short_layer(name: str) -> str:
    """Return a layer's name; of a long one the parts that distinguish it from its neighbours."""
    parts = name.split("/")
    if len(name) > _LAYER_LETTERS and len(parts) > 2:
        parts = parts[1:]  # what all blocks are in
    if len("/".join(parts)) > _LAYER_LETTERS and len(parts) > 2:
        parts = [parts[0], "..", parts[-1]]
    return cut_to("/".join(parts), _LAYER_LETTERS)
