"""The parts that all pictures share: a backend without a display, labels, files of figure and data."""

from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Union

import matplotlib

from elastictrainer.errors import UsageError
from elastictrainer.plotting.captions import cut_to
from elastictrainer.runs.files import atomic_write, write_csv
from elastictrainer.runs.run_folder import RunFolder
from elastictrainer.selection import schemes

matplotlib.use("Agg")
from matplotlib import pyplot

matplotlib.rcParams["text.parse_math"] = False  # a $ in a user's name is a $

_LAYER_LETTERS = 28
FORMATS = (".png", ".pdf", ".svg")


class Drawing(NamedTuple):
    """A Matplotlib figure, and the data drawn in it: a dict for each point, bar or cell."""

    figure: Any
    rows: List[Dict[str, Any]]


def save(drawing: Drawing, path: Union[str, Path]) -> None:
    """Write the figure in the format that the file's ending names, one of FORMATS, and close it."""
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
    if not schemes.selects(settings["scheme"]):
        return settings["scheme"]
    return f"{settings['scheme']}, rho {settings['rho']:g}"


def layer_of(tensor: str) -> str:
    """Return the name of a tensor's layer: "conv1" of "conv1/kernel"."""
    return tensor.rpartition("/")[0] or tensor


def layer_ticks(axes: Any, layers: List[str], most: int = 12) -> None:
    """Put up to `most` of the layers' names, evenly spaced, along the horizontal axis: layer i at i."""
    ticks = evenly_spaced(len(layers), most)
    names = [cut_to(layers[i], _LAYER_LETTERS) for i in ticks]
    axes.set_xticks(ticks, names, rotation=30, ha="right", fontsize=7)


def evenly_spaced(count: int, most: int) -> List[int]:
    """Return at most `most` of the numbers below `count`, from 0 on."""
    return list(range(0, count, max(1, -(-count // most))))
