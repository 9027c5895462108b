"""Accuracy and time of finished runs, side by side."""

import textwrap
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import numpy as np

from elastictrainer.plotting.captions import time_unit
from elastictrainer.plotting.replicates import replicates, spread, what_counts
from elastictrainer.runs.run_folder import RunFolder
from elastictrainer.selection import schemes

NOTE = (
    "ratio: training seconds over those of full training on the same device, if it is among the runs.\n"
    "achieved: training seconds over those of full training, as the run's own full steps measured them.\n"
    "predicted: that ratio by the profile. replayed: steps that began with what was recorded.\n"
    "recorded MB: the largest recording. "
    "selecting: importance, selection and tracing, of training time.\n"
    "Columns without a value are left out."
)
_BRIEF = 44  # characters of what tells runs apart, where their names do too
_NAMES = ("run", "model", "scheme")  # columns that hold names
# A run is compared with full training, the one of the most epochs, if these agree.
_COMPARED_BY = (
    "model",
    "weights",
    "dataset",
    "batch_size",
    "image_size",
    "optimizer",
    "mixed_precision",
    "device",
)


class _Column(NamedTuple):
    """A measured quantity: its value in a summary (None: not measured), and how it is printed."""

    key: str
    of: Callable[[Dict[str, Any]], Optional[float]]
    form: str
    factor: float = 1.0
    unit: str = ""


def _recorded_mb(summary: Dict[str, Any]) -> Optional[float]:
    return summary["recorded_bytes"] / 1e6 if summary.get("replayed_share") else None


def _selecting(summary: Dict[str, Any]) -> float:
    parts = ("importance_seconds", "selection_seconds", "trace_seconds")
    return sum(summary[part] for part in parts) / summary["train_seconds"]


_COLUMNS = {
    "best acc.": _Column("best", lambda s: s.get("accuracy_best"), ".2f", 100, " %"),
    "last acc.": _Column("last", lambda s: s.get("accuracy_last"), ".2f", 100, " %"),
    "training s": _Column("train_seconds", lambda s: s["train_seconds"], ".1f"),
    "ratio": _Column("ratio", lambda s: s["train_seconds"] / s["full"] if s["full"] else None, ".3f"),
    "achieved": _Column("achieved", lambda s: s["rho_achieved"], ".3f"),
    "predicted": _Column("predicted", lambda s: s["rho_predicted"], ".3f"),
    "replayed": _Column("replayed", lambda s: s.get("replayed_share") or None, ".0f", 100, " %"),
    "recorded MB": _Column("recorded_mb", _recorded_mb, ".0f"),
    "selecting": _Column("selecting", _selecting, ".1f", 100, " %"),
}


def rows(runs: List[RunFolder]) -> List[Dict[str, Any]]:
    """Return a row for each group of runs that differ in their seed only (see `replicates`).

    Returns:
        Rows with the keys scheme, runs (how many), names (of their folders), model, asked (rho; None: the
        scheme takes none), and the keys of `_COLUMNS`: means over the runs; their standard deviations have
        the keys `..._deviation`. Accuracies and shares are 0..1. None stands for what was not measured, for a
        ratio without full training of the same model and data on the same device among `runs`, and for the
        standard deviation of a single run.

    Raises:
        UsageError: a run is not finished.
    """
    groups = replicates(runs)
    full_seconds: Dict[Tuple[Any, ...], float] = {}
    for members in sorted(groups.values(), key=lambda group: group[0].config().get("epochs", 0)):
        if members[0].config()["scheme"] == "full":
            seconds = float(np.mean([run.summary()["train_seconds"] for run in members]))
            full_seconds[_compared_by(members[0])] = seconds
    result = []
    for name, members in groups.items():
        full = full_seconds.get(_compared_by(members[0]))
        summaries = [{**run.summary(), "full": full} for run in members]
        settings = members[0].config()
        row: Dict[str, Any] = {
            "scheme": name,
            "runs": len(members),
            "names": [run.path.name for run in members],
            "model": settings.get("model", ""),
            "asked": settings["rho"] if schemes.selects(settings["scheme"]) else None,
        }
        for column in _COLUMNS.values():
            sample = [value for value in map(column.of, summaries) if value is not None]
            row[column.key] = float(np.mean(sample)) if sample else None
            row[f"{column.key}_deviation"] = spread(sample) if sample else None
        result.append(row)
    return result


def _compared_by(run: RunFolder) -> Tuple[Any, ...]:
    counting = what_counts(run)
    return tuple(counting.get(key) for key in _COMPARED_BY)


def _text(row: Dict[str, Any], column: _Column) -> str:
    """Return a value of `row` with its standard deviation and unit; "-" where it was not measured."""
    mean, deviation = row[column.key], row[f"{column.key}_deviation"]
    if mean is None:
        return "-"
    spread_text = "" if deviation is None else f" ± {column.factor * deviation:{column.form}}"
    return f"{column.factor * mean:{column.form}}{spread_text}{column.unit}"


def all_cells(runs: List[RunFolder]) -> List[Dict[str, str]]:
    """Return the texts of `rows` by column heading, from left to right."""
    return _without_empty(
        [
            {
                "scheme": row["scheme"] + (f" ({row['runs']} runs)" if row["runs"] > 1 else ""),
                **{heading: _text(row, column) for heading, column in _COLUMNS.items()},
            }
            for row in rows(runs)
        ]
    )


def brief_cells(runs: List[RunFolder]) -> List[Dict[str, str]]:
    """Return the texts of `rows` that a user compares runs by: requested and achieved values."""
    found = rows(runs)
    unit = time_unit(max(row["train_seconds"] for row in found))
    seconds = _COLUMNS["training s"]._replace(factor=1 / unit.seconds, unit=f" {unit.name}")
    cells = []
    for row in found:
        asked = row["asked"]
        scheme = row["scheme"] if asked is None else row["scheme"].replace(f", rho {asked:g}", "", 1)
        cells.append(
            {
                "run": row["names"][0] if row["runs"] == 1 else f"{row['runs']} seeds",
                "model": Path(row["model"]).name,
                "scheme": textwrap.shorten(scheme, _BRIEF, placeholder=" ..."),
                "rho asked": "-" if asked is None else f"{asked:.2f}",
                "rho got": _text(row, _COLUMNS["achieved"]),
                "accuracy": _text(row, _COLUMNS["last acc."]),
                "training time": _text(row, seconds),
            }
        )
    return _without_empty(cells)


def text(runs: List[RunFolder], verbose: bool = False) -> str:
    """Return the brief table for a terminal; `verbose`: all columns, explained."""
    shown = all_cells(runs) if verbose else brief_cells(runs)
    wide = {key: max(len(key), *(len(row[key]) for row in shown)) for key in shown[0]}
    lines = [
        "  ".join(f"{row[key]:{'<' if key in _NAMES else '>'}{wide[key]}}" for key in wide).rstrip()
        for row in ({key: key for key in wide}, *shown)
    ]
    return "\n".join([*lines, NOTE] if verbose else lines)


def _without_empty(texts: List[Dict[str, str]]) -> List[Dict[str, str]]:
    """Leave out the columns in which no row has a value."""
    return [{k: text for k, text in row.items() if any(other[k] != "-" for other in texts)} for row in texts]
