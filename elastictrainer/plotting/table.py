"""What was asked of finished runs and what they got, side by side."""

import textwrap
from pathlib import Path
from typing import Any, Dict, List

import numpy as np

from elastictrainer.plotting.captions import time_unit
from elastictrainer.plotting.replicates import replicates, spread
from elastictrainer.runs.run_folder import RunFolder
from elastictrainer.selection import schemes

_BRIEF = 44  # characters of what tells runs apart, where their names do too
_NAMES = ("run", "model", "scheme")  # columns that hold names


def rows(runs: List[RunFolder]) -> List[Dict[str, str]]:
    """Return the cells by column heading, a row for each group of runs that differ in their seed only.

    Numbers are means over the runs of a group, with their standard deviation; "-" stands for what was not
    measured. A column in which no row has a value is left out. UsageError where a run is not finished.
    """
    unit = time_unit(max(run.summary()["train_seconds"] for run in runs))
    cells = []
    for name, members in replicates(runs).items():
        summaries = [run.summary() for run in members]
        seconds = _values(summaries, "train_seconds") / unit.seconds
        settings = members[0].config()
        asked = settings["rho"] if schemes.selects(settings["scheme"]) else None
        scheme = name if asked is None else name.replace(f", rho {asked:g}", "", 1)
        cells.append(
            {
                "run": members[0].path.name if len(members) == 1 else f"{len(members)} seeds",
                "model": Path(settings.get("model", "")).name,
                "scheme": textwrap.shorten(scheme, _BRIEF, placeholder=" ..."),
                "rho asked": "-" if asked is None else f"{asked:.2f}",
                "rho got": _mean(_values(summaries, "rho_achieved"), ".3f"),
                "accuracy": _mean(100 * _values(summaries, "accuracy"), ".2f", " %"),
                "training time": _mean(seconds, ".1f", f" {unit.name}"),
            }
        )
    return [{k: text for k, text in row.items() if any(other[k] != "-" for other in cells)} for row in cells]


def text(runs: List[RunFolder]) -> str:
    """Return the table for a terminal."""
    shown = rows(runs)
    wide = {key: max(len(key), *(len(row[key]) for row in shown)) for key in shown[0]}
    lines = [
        "  ".join(f"{row[key]:{'<' if key in _NAMES else '>'}{wide[key]}}" for key in wide).rstrip()
        for row in ({key: key for key in wide}, *shown)
    ]
    return "\n".join(lines)


def _values(summaries: List[Dict[str, Any]], key: str) -> np.ndarray:
    return np.array([summary[key] for summary in summaries if summary.get(key) is not None], float)


def _mean(values: np.ndarray, form: str, unit: str = "") -> str:
    if not len(values):
        return "-"
    deviation = spread(values)
    return f"{values.mean():{form}}" + ("" if deviation is None else f" ± {deviation:{form}}") + unit
