"""Accuracy over training time, a point for each run: what a user decides by."""

from typing import Any, Dict, List, Tuple

import numpy as np
from matplotlib.font_manager import FontProperties

from elastictrainer.errors import UsageError
from elastictrainer.plotting import captions
from elastictrainer.plotting.drawing import Drawing, label, pyplot
from elastictrainer.plotting.replicates import replicates, shortened, spread, what_counts
from elastictrainer.plotting.styles import LINES, of_scheme
from elastictrainer.runs.run_folder import RunFolder
from elastictrainer.selection import schemes

_APART = ("model", "dataset", "device", "image_size", "batch_size")


def tradeoff(runs: List[RunFolder]) -> Drawing:
    """Test accuracy at the end of training over training time: runs small, the mean over their seeds large.

    Bars are the standard deviations of both over seeds. A colour stands for a scheme; hollow points for the
    scheme without reuse. A line joins the points of a scheme in the order of time. Rho, and the epochs of
    full training, are written next to the points. Above is the share of the longest full training's time.

    Args:
        runs: finished.

    Raises:
        UsageError: a run is not finished, or was not evaluated.
    """
    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    families: Dict[str, List[Dict[str, Any]]] = {}
    rows = []
    everywhere = [what_counts(run) for run in runs]
    apart = [key for key in _APART if len({str(settings.get(key)) for settings in everywhere}) > 1]
    for name, members in replicates(runs).items():
        settings, summaries = members[0].config(), [run.summary() for run in members]
        for run, summary in zip(members, summaries):
            if summary.get("accuracy_last") is None:
                raise UsageError(f"{run.path} was not evaluated: leave it out, or see `Evaluation`.")
        off = settings.get("reuse") == "off" and settings["scheme"] != "full"
        family, note = _words(members[0], name, off, apart)
        point = {
            "scheme": settings["scheme"],
            "off": off,
            "seconds": np.array([s["train_seconds"] for s in summaries]),
            "accuracy": 100 * np.array([s["accuracy_last"] for s in summaries]),
            "note": note,
        }
        families.setdefault(family, []).append(point)
        rows += [
            {"runs": name, "seed": run.config().get("seed"), "train_seconds": s, "accuracy_percent": a}
            for run, s, a in zip(members, point["seconds"], point["accuracy"])
        ]
    unit = captions.time_unit(max(row["train_seconds"] for row in rows))
    for family, points in families.items():
        style = of_scheme(points[0]["scheme"])
        namesakes = sorted(f for f, others in families.items() if others[0]["scheme"] == points[0]["scheme"])
        look: Dict[str, Any] = {
            "color": style.colour,
            "marker": style.marker,
            "linestyle": LINES[namesakes.index(family) % len(LINES)],
            "markerfacecolor": "white" if points[0]["off"] else style.colour,
        }
        points.sort(key=lambda p: p["seconds"].mean())
        means = np.array([(p["seconds"].mean() / unit.seconds, p["accuracy"].mean()) for p in points])
        if any(len(p["seconds"]) > 1 for p in points):
            look["xerr"] = [(spread(p["seconds"]) or 0.0) / unit.seconds for p in points]
            look["yerr"] = [spread(p["accuracy"]) or 0.0 for p in points]
        axes.errorbar(
            means[:, 0], means[:, 1], capsize=3, markersize=7, label=_with_runs(family, points), **look
        )
        for point, at in zip(points, means):
            if len(point["seconds"]) > 1:
                single = (point["seconds"] / unit.seconds, point["accuracy"])
                axes.plot(*single, style.marker, color=style.colour, markersize=3, alpha=0.5)
            shift: Dict[str, Any] = {"xytext": (6, -6), "textcoords": "offset points", "va": "top"}
            axes.annotate(point["note"], at, color=style.colour, size=8, **shift)
    axes.set_xlabel(f"training time ({unit.name}), validation not counted")
    axes.set_ylabel("test accuracy at the end (%)")
    axes.margins(0.1)
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    legend = axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=9)
    if len({row["runs"] for row in rows}) < len(rows):
        legend.set_title(
            "mean over seeds;\nbars: standard deviation;\ndots: single runs", FontProperties(size=7)
        )
        legend.get_title().set_multialignment("left")
    captions.set_title(axes, "Accuracy over training time", captions.subject(runs))
    if "full" in families:
        one_percent = float(families["full"][-1]["seconds"].mean()) / unit.seconds / 100
        percent: Any = (lambda time: time / one_percent, lambda share: share * one_percent)
        above = axes.secondary_xaxis("top", functions=percent)
        above.set_xlabel("in % of full training's time")
    return Drawing(figure, rows)


def _with_runs(family: str, points: List[Dict[str, Any]]) -> str:
    """Return the legend's words: how many seeds each point is the mean of, where there are several."""
    counts = [len(p["seconds"]) for p in points]
    least, most = min(counts), max(counts)
    if most == 1:
        return family
    return f"{family} ({least if least == most else f'{least}-{most}'} seeds)"


def _words(run: RunFolder, name: str, off: bool, apart: List[str]) -> Tuple[str, str]:
    """Return the family of a group of replicates, for the legend, and the text next to its point.

    Args:
        run: one of the group.
        name: its label, which names the settings in which it differs from its namesakes.
        off: whether it trained without reuse.
        apart: settings that differ among all runs, and whose points belong to no common line.
    """
    settings = what_counts(run)
    scheme, epochs = settings["scheme"], settings.get("epochs")
    others = [words for words in name[len(label(run)) :].split(", ") if words]
    elsewhere = tuple(f"{key} " for key in ("reuse", "epochs", *apart))
    notes = [f"rho {settings['rho']:g}"] if schemes.selects(scheme) else []
    notes += [words for words in others if not words.startswith(elsewhere)]
    if epochs and (scheme == "full" or any(words.startswith("epochs ") for words in others)):
        notes.append(f"{epochs} epoch{'' if epochs == 1 else 's'}")
    family = [scheme, *(["reuse off"] if off else [])]
    family += [f"{key} {shortened(key, settings.get(key))}" for key in apart]
    return ", ".join(family), ", ".join(notes)
