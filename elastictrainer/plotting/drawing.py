"""The parts that all pictures share: files of figure and data, names, units, and the look of a run."""

import re
import zlib
from pathlib import Path, PurePath
from typing import Dict, List, NamedTuple, Sequence, Tuple, Union

import matplotlib
import matplotlib.figure

from elastictrainer.errors import UsageError
from elastictrainer.experiment.settings import asked_rho
from elastictrainer.runs.files import atomic_write, write_csv
from elastictrainer.runs.run_folder import RunFolder

matplotlib.use("Agg")  # needs no display
from matplotlib import pyplot

matplotlib.rc("text", parse_math=False)  # a $ in a user's name is a $
matplotlib.rc("figure.constrained_layout", use=True)
matplotlib.rc("figure", titlesize=10)
matplotlib.rc("axes", titlesize=10, labelsize=8)
matplotlib.rc("xtick", labelsize=8)
matplotlib.rc("ytick", labelsize=8)
matplotlib.rc("legend", fontsize=8, frameon=False)

FORMATS = (".png", ".pdf", ".svg")
# Okabe and Ito's palette, and a brown: colour-blind readers can tell them apart (a test measures it).
SCHEMES = {
    "elastic": ("#D55E00", "s"),
    "elastic-weight-magnitude": ("#000000", "X"),
    "elastic-grad-magnitude": ("#663311", "P"),
    "freeze-below": ("#009E73", "D"),
    "full": ("#0072B2", "o"),
    "traditional-tl": ("#E69F00", "^"),
    "last-layers": ("#F0E442", "<"),
    "head-alone": ("#FFBBBB", "d"),
    "bn-bias": ("#CC79A7", "v"),
    "prunetrain": ("#56B4E9", "p"),
}
# Schemes of users: the name alone decides, so that a scheme looks the same in every picture.
OWN_COLOURS = ("#7700DD", "#112288", "#99BB66", "#554455", "#BB55FF")
OWN_MARKERS = ("*", "h", "<", ">", "8")
LINES = ("-", "--", ":", "-.")


class Drawing(NamedTuple):
    """A Matplotlib figure, and the data drawn in it: a dict for each point or cell."""

    figure: matplotlib.figure.Figure
    rows: List[Dict[str, object]]


def save(drawing: Drawing, path: Union[str, Path]) -> None:
    """Write the figure in the format that the file's ending names, one of FORMATS, and close it."""
    if Path(path).suffix.lower() not in FORMATS:
        raise UsageError(f"cannot draw into {path}; valid endings: {' '.join(FORMATS)}.")
    with atomic_write(path) as unfinished:
        drawing.figure.savefig(unfinished, dpi=150)
    pyplot.close(drawing.figure)


def save_data(drawing: Drawing, path: Union[str, Path]) -> None:
    write_csv(path, drawing.rows[0], (row.values() for row in drawing.rows))


class Style(NamedTuple):
    """Colour and marker of Matplotlib, and the line style that tells runs of one scheme apart."""

    colour: str
    marker: str
    line: str = LINES[0]


def of_scheme(scheme: str) -> Style:
    """Return the look of a scheme, the same in every picture."""
    if scheme in SCHEMES:
        return Style(*SCHEMES[scheme])
    number = zlib.crc32(scheme.encode())  # unlike hash(), the same in every process
    marker = OWN_MARKERS[number // len(OWN_COLOURS) % len(OWN_MARKERS)]
    return Style(OWN_COLOURS[number % len(OWN_COLOURS)], marker)


def styles(runs: Sequence[RunFolder]) -> List[Style]:
    """Return the looks of runs in one picture: those of one colour differ in their lines."""
    looks = [of_scheme(run.config()["scheme"]) for run in runs]
    colours = [look.colour for look in looks]
    return [
        look._replace(line=LINES[colours[:k].count(look.colour) % len(LINES)]) for k, look in enumerate(looks)
    ]


def label(run: RunFolder) -> str:
    """Return the scheme of a run, and what was asked of it: rho, or the time."""
    settings = run.config()
    rho = asked_rho(settings)
    if rho is not None:
        return f"{settings['scheme']}, rho {rho:g}"
    return settings["scheme"] + (f", time {settings['time']}" if settings.get("time") else "")


def labels(runs: Sequence[RunFolder]) -> List[str]:
    """Return a label for each run, with the folder's name where several would have the same."""
    names = [label(run) for run in runs]
    folders = [f" ({cut_to(run.path.name)})" for run in runs]
    return [name + folder * (names.count(name) > 1) for name, folder in zip(names, folders)]


def subject(runs: Sequence[RunFolder]) -> str:
    """Return model and data set of `runs`, such as "mobilenetv2 on birds", or how many there are."""
    configs = [run.config() for run in runs]
    about = {f"{model_name(c.get('model'))} on {data_name(c.get('dataset'))}" for c in configs}
    return about.pop() if len(about) == 1 else f"{len(about)} models or data sets"


def model_name(model: object) -> str:
    """Return a model's name without folders and the file's ending."""
    name = str(model or "")
    return cut_to(PurePath(name).stem if name.endswith(".keras") else name)


def data_name(dataset: object) -> str:
    """Return a data set's name without folders; of one of tensorflow-datasets the name, not its version."""
    path = PurePath(str(dataset or ""))
    return cut_to(path.parent.name if re.fullmatch(r"\d+\.\d+\.\d+", path.name) else path.name)


def cut_to(name: str, most: int = 32) -> str:
    """Shorten a name to at most `most` letters by leaving out its middle."""
    return name if len(name) <= most else f"{name[:8]}..{name[10 - most :]}"


def time_unit(longest_s: float) -> Tuple[str, float]:
    """Return name and seconds of the unit in which times up to `longest_s` have two to four digits."""
    if longest_s <= 600:
        return "s", 1.0
    return ("min", 60.0) if longest_s <= 7200 else ("h", 3600.0)


def evenly_spaced(count: int, most: int) -> List[int]:
    """Return at most `most` of the numbers below `count`, from 0 on."""
    return list(range(0, count, max(1, -(-count // most))))
