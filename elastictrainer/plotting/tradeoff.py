"""Accuracy over training time, a point for each run: what a user decides by."""

from pathlib import Path
from typing import Any, Dict, List

import numpy as np

from elastictrainer.errors import UsageError
from elastictrainer.plotting.drawing import COLOURS, MARKERS, Drawing, pyplot
from elastictrainer.plotting.replicates import replicates, spread
from elastictrainer.registry import takes_rho
from elastictrainer.runs.run_folder import RunFolder


def tradeoff(runs: List[RunFolder]) -> Drawing:
    """Test accuracy at the end of training over training time: runs small, the mean over their seeds large.

    Bars are standard deviations. Rho and the number of epochs are written at the points; a colour stands for
    a scheme, with or without reuse.

    Args:
        runs: finished.

    Raises:
        UsageError: a run is not finished, or was not evaluated.
    """
    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    families: Dict[str, List[Dict[str, Any]]] = {}
    rows = []
    for name, members in replicates(runs).items():
        settings, summaries = members[0].config(), [run.summary() for run in members]
        for run, summary in zip(members, summaries):
            if summary.get("accuracy_last") is None:
                raise UsageError(f"{run.path} was not evaluated: leave it out, or see `Evaluation`.")
        off = settings.get("reuse") == "off" and settings["scheme"] != "full"
        family = settings["scheme"] + (", reuse off" if off else "")
        point = {
            "family": family,
            "seconds": np.array([s["train_seconds"] for s in summaries]),
            "accuracy": 100 * np.array([s["accuracy_last"] for s in summaries]),
            "note": f"{settings.get('epochs', '?')} epochs" if family == "full" else _note(settings),
        }
        families.setdefault(family, []).append(point)
        rows += [
            {"runs": name, "train_seconds": s, "accuracy_percent": a}
            for s, a in zip(point["seconds"], point["accuracy"])
        ]
    for k, (family, points) in enumerate(families.items()):
        colour, marker = COLOURS[k % len(COLOURS)], MARKERS[k % len(MARKERS)]
        points.sort(key=lambda p: p["seconds"].mean())
        means = np.array([(p["seconds"].mean(), p["accuracy"].mean()) for p in points])
        deviations = [spread(p["accuracy"]) or 0.0 for p in points]
        seconds, accuracy = means.T
        axes.errorbar(seconds, accuracy, deviations, color=colour, marker=marker, capsize=3, label=family)
        for point, place in zip(points, means):
            axes.plot(point["seconds"], point["accuracy"], marker, color=colour, markersize=3, alpha=0.5)
            axes.annotate(point["note"], place, xytext=(5, -11), textcoords="offset points", fontsize=8)
    first = runs[0].config()
    axes.set_title(f"{first['model']} on {Path(first['dataset']).name}")
    axes.set_xlabel("training time (s)")
    axes.set_ylabel("test accuracy at the end (%)")
    axes.margins(x=0.12)  # room for what is written at the last point
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    axes.legend()
    return Drawing(figure, rows)


def _note(settings: Dict[str, Any]) -> str:
    return f"rho {settings['rho']:g}" if takes_rho(settings["scheme"]) else ""
