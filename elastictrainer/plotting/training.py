"""Pictures of training: how accuracy grows, and what runs cost."""

from typing import Any, Callable, Dict, List, NamedTuple, Optional

import numpy as np

from elastictrainer.errors import UsageError, unknown
from elastictrainer.plotting.drawing import COLOURS, MARKERS, Drawing, label, pyplot
from elastictrainer.run_folder import RunFolder


class Quantity(NamedTuple):
    """Something to draw: the words for its axis, and how to take it from a record; None where it was not measured."""

    words: str
    of: Callable[[Dict[str, Any]], Optional[float]]


def _scaled(key: str, factor: float) -> Callable[[Dict[str, Any]], Optional[float]]:
    return lambda record: None if record.get(key) is None else factor * record[key]


X = {
    "time": Quantity("training time without validation (s)", _scaled("train_seconds_total", 1.0)),
    "epochs": Quantity("epoch", _scaled("epoch", 1.0)),
    "flops": Quantity("training work (TFLOPs)", _scaled("flops_total", 1e-12)),
}
Y = {
    "accuracy": Quantity("test accuracy (%)", _scaled("test_accuracy", 100.0)),
    "loss": Quantity("test loss", _scaled("test_loss", 1.0)),
    "flops": Quantity("training work of the epoch (TFLOPs)", _scaled("flops", 1e-12)),
}
BARS = {
    "accuracy": Quantity("best test accuracy (%)", _scaled("accuracy_best", 100.0)),
    "time": Quantity("training time (s)", _scaled("train_seconds", 1.0)),
    "flops": Quantity("training work (TFLOPs)", _scaled("flops_total", 1e-12)),
    "energy": Quantity("energy of training (J)", _scaled("energy_joules", 1.0)),
    "memory": Quantity("peak resident memory (GB)", _scaled("peak_rss_bytes", 1e-9)),
}
_HOURS_FROM = 7200


def curves(runs: List[RunFolder], x: str = "time", y: str = "accuracy") -> Drawing:
    """Accuracy, loss or an epoch's FLOPs over training time, epochs or FLOPs, a line per run (paper Fig. 15, 16, 18)."""
    across, up = _quantity("x", x, X), _quantity("y", y, Y)
    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    rows: List[Dict[str, Any]] = []
    for k, run in enumerate(runs):
        points = [(across.of(r), up.of(r)) for r in run.metrics()]
        if not points or any(value is None for point in points for value in point):
            raise UsageError(f"{run.path} has no {x} to draw {y} over: choose another --x.")
        axes.plot(*zip(*points), marker=MARKERS[k % len(MARKERS)], markersize=4, color=COLOURS[k % len(COLOURS)],
                  label=label(run))  # fmt: skip
        rows += [{"run": str(run.path), "label": label(run), x: a, y: b} for a, b in points]
    words = across.words
    if x == "time" and max(row["time"] for row in rows) > _HOURS_FROM:
        axes.xaxis.set_major_formatter(lambda seconds, _: f"{seconds / 3600:g}")
        words = words.replace("(s)", "(h)")
    axes.set_xlabel(words)
    axes.set_ylabel(up.words)
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    axes.legend()
    return Drawing(figure, rows)


def bars(runs: List[RunFolder], y: str = "accuracy") -> Drawing:
    """One figure of each scheme and rho; runs of the same are averaged, the whisker being their standard deviation."""
    quantity = _quantity("y", y, BARS)
    values: Dict[str, List[Optional[float]]] = {}
    for run in runs:
        values.setdefault(label(run), []).append(quantity.of(run.summary()))
    figure, axes = pyplot.subplots(figsize=(max(3.5, 1.1 * len(values) + 1), 3.5), layout="constrained")
    rows = []
    for k, (name, found) in enumerate(values.items()):
        known = [value for value in found if value is not None]
        if not known:
            axes.text(k, 0, "not measured", rotation=90, ha="center", va="bottom", fontsize=8, color="#666666")
            rows.append({"label": name, "runs": len(found), y: "", "standard_deviation": ""})
            continue
        spread = float(np.std(known, ddof=1)) if len(known) > 1 else None
        drawn = axes.bar(k, np.mean(known), 0.65, yerr=spread, capsize=3, color=COLOURS[k % len(COLOURS)])
        axes.bar_label(drawn, fmt="%.3g", fontsize=8, padding=2)
        rows.append({"label": name, "runs": len(found), y: float(np.mean(known)), "standard_deviation": spread})
    axes.set_xticks(range(len(values)), [name.replace(", ", "\n") for name in values], fontsize=8)
    axes.set_xlim(-0.6, len(values) - 0.4)
    axes.margins(y=0.15)
    axes.set_ylabel(quantity.words)
    return Drawing(figure, rows)


def _quantity(option: str, name: str, valid: Dict[str, Quantity]) -> Quantity:
    if name not in valid:
        raise unknown(f"--{option}", name, valid)
    return valid[name]
