"""Accuracy and time of finished runs, side by side."""

import textwrap
from pathlib import Path
from typing import Any, Dict, List, Tuple

import numpy as np

from elastictrainer.plotting.replicates import replicates, spread, what_counts
from elastictrainer.registry import takes_rho
from elastictrainer.runs.run_folder import RunFolder

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


def rows(runs: List[RunFolder]) -> List[Dict[str, Any]]:
    """Return a row for each group of runs that differ in their seed only (see `replicates`).

    Returns:
        Rows with the keys scheme, runs (how many), names (of their folders), model, asked (rho; None: the
        scheme takes none), best and last (test accuracy, 0..1), train_seconds,
        ratio, achieved, predicted and replayed (0..1), recorded_mb, recording_s, replay_s (seconds of the
        steps that record and that replay) and selecting (0..1). All but the first five are means; their
        standard deviations have the keys `..._deviation`. None stands for what was not measured, for a ratio
        without full training of the same model and data on the same device among `runs`, and for the
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
        summaries = [run.summary() for run in members]
        full = full_seconds.get(_compared_by(members[0]))
        values = {
            "best": [s["accuracy_best"] for s in summaries if s.get("accuracy_best") is not None],
            "last": [s["accuracy_last"] for s in summaries if s.get("accuracy_last") is not None],
            "train_seconds": [s["train_seconds"] for s in summaries],
            "ratio": [s["train_seconds"] / full for s in summaries] if full else [],
            "achieved": [s["rho_achieved"] for s in summaries if s["rho_achieved"] is not None],
            "predicted": [s["rho_predicted"] for s in summaries if s["rho_predicted"] is not None],
            "replayed": [s["replayed_share"] for s in summaries if s.get("replayed_share")],
            "recorded_mb": [s["recorded_bytes"] / 1e6 for s in summaries if s.get("replayed_share")],
            "recording_s": [s["recording_seconds"] for s in summaries if s.get("replayed_share")],
            "replay_s": [s["replay_seconds"] for s in summaries if s.get("replayed_share")],
            "selecting": [
                (s["importance_seconds"] + s["selection_seconds"] + s["trace_seconds"]) / s["train_seconds"]
                for s in summaries
            ],
        }
        settings = members[0].config()
        row: Dict[str, Any] = {
            "scheme": name,
            "runs": len(members),
            "names": [run.path.name for run in members],
            "model": settings.get("model", ""),
            "asked": settings["rho"] if takes_rho(settings["scheme"]) else None,
        }
        for key, sample in values.items():
            row[key] = float(np.mean(sample)) if sample else None
            row[f"{key}_deviation"] = spread(sample) if sample else None
        result.append(row)
    return result


def _compared_by(run: RunFolder) -> Tuple[Any, ...]:
    counting = what_counts(run)
    return tuple(counting.get(key) for key in _COMPARED_BY)


def cells(row: Dict[str, Any]) -> Dict[str, str]:
    """Return the texts of a row of `rows` by column heading, from left to right."""

    def number(key: str, form: str, factor: float = 1.0, unit: str = "") -> str:
        if row[key] is None:
            return "-"
        deviation = row[f"{key}_deviation"]
        return (
            f"{factor * row[key]:{form}}"
            + ("" if deviation is None else f" ± {factor * deviation:{form}}")
            + unit
        )

    return {
        "scheme": row["scheme"] + (f" ({row['runs']} runs)" if row["runs"] > 1 else ""),
        "best acc.": number("best", ".2f", 100, " %"),
        "last acc.": number("last", ".2f", 100, " %"),
        "training s": number("train_seconds", ".1f"),
        "ratio": number("ratio", ".3f"),
        "achieved": number("achieved", ".3f"),
        "predicted": number("predicted", ".3f"),
        "replayed": number("replayed", ".0f", 100, " %"),
        "recorded MB": number("recorded_mb", ".0f"),
        "recording s": number("recording_s", ".1f"),
        "replay s": number("replay_s", ".1f"),
        "selecting": number("selecting", ".1f", 100, " %"),
    }


def brief_cells(row: Dict[str, Any]) -> Dict[str, str]:
    """Return the texts by column heading that a user compares runs by, from a row of `rows`."""
    all_of_it = cells(row)
    asked = row["asked"]
    scheme = row["scheme"] if asked is None else row["scheme"].replace(f", rho {asked:g}", "", 1)
    return {
        "run": row["names"][0] if row["runs"] == 1 else f"{row['runs']} seeds",
        "model": Path(row["model"]).name,
        "scheme": textwrap.shorten(scheme, _BRIEF, placeholder=" ..."),
        "rho asked": "-" if asked is None else f"{asked:.2f}",
        "rho got": all_of_it["achieved"],
        "accuracy": all_of_it["last acc."],
        "training time": all_of_it["training s"] + " s",
    }


def shown_cells(runs: List[RunFolder]) -> List[Dict[str, str]]:
    """Return the `cells` of `rows`, without the columns in which no row has a value."""
    return _without_empty([cells(row) for row in rows(runs)])


def text(runs: List[RunFolder], verbose: bool = False) -> str:
    """Return the table of `rows` for a terminal: requested and achieved values; `verbose`: all of them,
    explained.
    """
    if verbose:
        return "\n".join([*_lines(shown_cells(runs)), NOTE])
    return "\n".join(_lines(_without_empty([brief_cells(row) for row in rows(runs)])))


def _without_empty(texts: List[Dict[str, str]]) -> List[Dict[str, str]]:
    return [
        {key: text for key, text in row.items() if any(other[key] != "-" for other in texts)} for row in texts
    ]


def _lines(shown: List[Dict[str, str]]) -> List[str]:
    """Align columns to the widest text; names on the left, numbers on the right."""
    wide = {key: max(len(key), *(len(row[key]) for row in shown)) for key in shown[0]}
    lines = [
        "  ".join(f"{row[key]:{'<' if key in _NAMES else '>'}{wide[key]}}" for key in wide)
        for row in ({key: key for key in wide}, *shown)
    ]
    return [line.rstrip() for line in lines]
