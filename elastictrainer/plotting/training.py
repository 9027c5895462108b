"""Pictures of training: curves over time, epochs or FLOPs, and bars that compare finished runs."""

import textwrap
from typing import Any, Callable, Dict, List, NamedTuple, Optional

import numpy as np

from elastictrainer.errors import UsageError, unknown
from elastictrainer.plotting.drawing import COLOURS, LINES, MARKERS, Drawing, pyplot
from elastictrainer.plotting.replicates import replicates, spread
from elastictrainer.runs.run_folder import RunFolder


class Quantity(NamedTuple):
    """Something to draw.

    Attributes:
        axis_label: with its unit.
        of: its value in a record of metrics.jsonl or in a summary; None if it was not measured.
    """

    axis_label: str
    of: Callable[[Dict[str, Any]], Optional[float]]


def _scaled(key: str, factor: float) -> Callable[[Dict[str, Any]], Optional[float]]:
    return lambda record: None if record.get(key) is None else factor * record[key]


def _held_out(key: str, factor: float) -> Callable[[Dict[str, Any]], Optional[float]]:
    """Of the test images; of the validation images in a run that tests once, at its end."""
    test, validation = _scaled(f"test_{key}", factor), _scaled(f"val_{key}", factor)
    return lambda record: validation(record) if test(record) is None else test(record)


X = {
    "time": Quantity("training time without validation (s)", _scaled("train_seconds_total", 1.0)),
    "epochs": Quantity("epoch", _scaled("epoch", 1.0)),
    "flops": Quantity("training work (TFLOPs)", _scaled("flops_total", 1e-12)),
}
Y = {
    "accuracy": Quantity("test accuracy (%)", _held_out("accuracy", 100.0)),
    "loss": Quantity("test loss", _held_out("loss", 1.0)),
    "flops": Quantity("training work of the epoch (TFLOPs)", _scaled("flops", 1e-12)),
}
BARS = {
    "accuracy": Quantity("best test accuracy (%)", _scaled("accuracy_best", 100.0)),
    "time": Quantity("training time (s)", _scaled("train_seconds", 1.0)),
    "flops": Quantity("training work (TFLOPs)", _scaled("flops_total", 1e-12)),
    "energy": Quantity("energy of training (J)", _scaled("energy_joules", 1.0)),
    "memory": Quantity("peak resident memory (GB)", _scaled("peak_rss_bytes", 1e-9)),
}
_HOURS_FROM = 7200  # seconds, above which the axis is in hours
_BAR_LETTERS = 14  # in a line below a bar


def curves(runs: List[RunFolder], x: str = "time", y: str = "accuracy") -> Drawing:
    """Accuracy, loss or an epoch's FLOPs over training time, epochs or FLOPs (paper Fig. 15, 16, 18).

    Runs that differ in their seed only are one line: their mean at every epoch, in a band of one standard
    deviation.

    Args:
        runs: with at least one finished epoch.
        x: a key of X.
        y: a key of Y.

    Raises:
        UsageError: an unknown quantity, or a run in which it was not measured.
    """
    x_quantity, y_quantity = _quantity("x", x, X), _quantity("y", y, Y)
    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    rows: List[Dict[str, Any]] = []
    for k, (name, members) in enumerate(replicates(runs).items()):
        points = [[(x_quantity.of(r), y_quantity.of(r)) for r in run.metrics()] for run in members]
        for run, run_points in zip(members, points):
            if not run_points or any(value is None for point in run_points for value in point):
                raise UsageError(f"{run.path} has no {x} to draw {y} over: choose another --x.")
        epochs = min(map(len, points))
        values = np.array([run_points[:epochs] for run_points in points], float)  # (runs, epochs, 2)
        (xs, ys), deviation = values.mean(axis=0).T, spread(values[..., 1])
        colour = COLOURS[k % len(COLOURS)]
        if deviation is not None:
            axes.fill_between(xs, ys - deviation, ys + deviation, color=colour, alpha=0.2, linewidth=0)
            name += f" ({len(members)} runs)"
        line = LINES[k // len(COLOURS) % len(LINES)]
        axes.plot(xs, ys, line, marker=MARKERS[k % len(MARKERS)], markersize=4, color=colour, label=name)
        paths = " ".join(str(run.path) for run in members)
        rows += [
            {
                "run": paths,
                "label": name,
                x: float(a),
                y: float(b),
                "standard_deviation": None if deviation is None else float(deviation[e]),
            }
            for e, (a, b) in enumerate(zip(xs, ys))
        ]
    x_label = x_quantity.axis_label
    if x == "time" and max(row["time"] for row in rows) > _HOURS_FROM:
        axes.xaxis.set_major_formatter(lambda seconds, _: f"{seconds / 3600:g}")
        x_label = x_label.replace("(s)", "(h)")
    axes.set_xlabel(x_label)
    validated = any("val_accuracy" in record for run in runs for record in run.metrics())
    axes.set_ylabel(y_quantity.axis_label.replace("test", "validation" if validated else "test"))
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    axes.legend()
    return Drawing(figure, rows)


def bars(runs: List[RunFolder], y: str = "accuracy") -> Drawing:
    """A bar for each scheme and rho; runs that differ in their seed only are one bar, their mean.

    Its whisker is their standard deviation.

    Args:
        runs: finished ones.
        y: a key of BARS.

    Raises:
        UsageError: an unknown quantity, or a run that is not finished.
    """
    quantity = _quantity("y", y, BARS)
    values = {
        name: [quantity.of(run.summary()) for run in members] for name, members in replicates(runs).items()
    }
    figure, axes = pyplot.subplots(figsize=(max(3.5, 1.1 * len(values) + 1), 3.5), layout="constrained")
    rows = []
    for k, (name, run_values) in enumerate(values.items()):
        measured = [value for value in run_values if value is not None]
        if not measured:
            axes.text(
                k, 0, "not measured", rotation=90, ha="center", va="bottom", fontsize=8, color="#666666"
            )
            rows.append({"label": name, "runs": len(run_values), y: "", "standard_deviation": ""})
            continue
        mean, deviation = float(np.mean(measured)), spread(measured)
        bar = axes.bar(k, mean, 0.65, yerr=deviation, capsize=3, color=COLOURS[k % len(COLOURS)])
        axes.bar_label(bar, labels=[_three_figures(mean)], fontsize=8, padding=2)
        rows.append(
            {
                "label": name,
                "runs": len(run_values),
                y: mean,
                "standard_deviation": deviation and float(deviation),
            }
        )
    axes.set_xticks(range(len(values)), [_in_lines(name) for name in values], fontsize=8)
    axes.set_xlim(-0.6, len(values) - 0.4)
    axes.margins(y=0.15)
    axes.set_ylabel(quantity.axis_label)
    return Drawing(figure, rows)


def _in_lines(name: str) -> str:
    """A bar's label, broken at its commas and where a line would be too long."""
    return "\n".join(textwrap.fill(part, _BAR_LETTERS) for part in name.split(", "))


def _three_figures(value: float) -> str:
    """A number with three significant figures, or rounded to a whole number from 100 on."""
    return f"{value:.0f}" if value >= 100 else f"{value:#.3g}"


def _quantity(option: str, name: str, valid: Dict[str, Quantity]) -> Quantity:
    if name not in valid:
        raise unknown(f"--{option}", name, valid)
    return valid[name]
