"""Accuracy over training time, a point for each run: what a user decides by."""

from typing import Any, Dict, List

import numpy as np

from elastictrainer.errors import UsageError
from elastictrainer.plotting import captions
from elastictrainer.plotting.drawing import Drawing, pyplot
from elastictrainer.plotting.replicates import replicates, spread
from elastictrainer.plotting.styles import of_scheme
from elastictrainer.runs.run_folder import RunFolder


def tradeoff(runs: List[RunFolder]) -> Drawing:
    """Draw test accuracy at the end over training time: runs small, the mean over their seeds large.

    Bars are the standard deviations of both over seeds. A colour stands for a scheme; the other settings that
    tell points apart are written next to them. Above is the share of the longest full training's time.
    UsageError where a run is not finished, or was not evaluated.
    """
    groups = {name: [_row(name, run) for run in members] for name, members in replicates(runs).items()}
    rows = [row for group in groups.values() for row in group]
    unit = captions.time_unit(max(row["train_seconds"] for row in rows))
    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    full: List[float] = []
    for name, group in groups.items():
        times = np.array([row["train_seconds"] for row in group]) / unit.seconds
        accuracies = np.array([row["accuracy_percent"] for row in group])
        scheme, at, height = group[0]["scheme"], times.mean(), accuracies.mean()
        style = of_scheme(scheme)
        look: Dict[str, Any] = {"fmt": style.marker, "color": style.colour, "capsize": 3, "markersize": 7}
        bars = axes.errorbar(at, height, yerr=spread(accuracies), xerr=spread(times), **look)
        if scheme not in axes.get_legend_handles_labels()[1]:
            bars.set_label(scheme)
        if len(group) > 1:
            axes.plot(times, accuracies, style.marker, color=style.colour, markersize=3, alpha=0.5)
        note = name.removeprefix(scheme).removeprefix(", ")
        below: Dict[str, Any] = {"xytext": (6, -6), "textcoords": "offset points", "va": "top"}
        axes.annotate(note, (at, height), color=style.colour, size=8, **below)
        if scheme == "full":
            full.append(at)
    axes.set_xlabel(f"training time ({unit.name}), validation not counted")
    axes.set_ylabel("test accuracy at the end (%)")
    axes.margins(0.1)
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=9)
    captions.set_title(axes, "Accuracy over training time", captions.subject(runs))
    if full:
        one_percent = max(full) / 100
        percent: Any = (lambda time: time / one_percent, lambda share: share * one_percent)
        above = axes.secondary_xaxis("top", functions=percent)
        above.set_xlabel("in % of full training's time")
    return Drawing(figure, rows)


def _row(name: str, run: RunFolder) -> Dict[str, Any]:
    """Return the data of a run's point, which belongs to the group `name`."""
    summary, settings = run.summary(), run.config()
    if summary.get("accuracy") is None:
        raise UsageError(f"{run.path} was not evaluated: leave it out, or see `Evaluation`.")
    return {
        "runs": name,
        "scheme": settings["scheme"],
        "seed": settings.get("seed"),
        "train_seconds": summary["train_seconds"],
        "accuracy_percent": 100 * summary["accuracy"],
    }
