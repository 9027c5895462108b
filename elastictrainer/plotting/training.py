"""Pictures of training: curves over time, epochs or FLOPs, and bars that compare finished runs."""

import textwrap
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import numpy as np
from matplotlib.font_manager import FontProperties

from elastictrainer.errors import UsageError, unknown
from elastictrainer.plotting import captions
from elastictrainer.plotting.drawing import Drawing, pyplot
from elastictrainer.plotting.replicates import replicates, spread
from elastictrainer.plotting.styles import styles
from elastictrainer.runs.run_folder import RunFolder


class Quantity(NamedTuple):
    """Something to draw.

    Attributes:
        name: for the title.
        unit: of the axis; None: a unit of time, as long as the times are.
        of: its value in a record of metrics.jsonl or in a summary; None if it was not measured.
    """

    name: str
    unit: Optional[str]
    of: Callable[[Dict[str, Any]], Optional[float]]

    def axis(self, longest: float) -> Tuple[str, float]:
        """Return the axis' words, and the divisor of the values there, of which the largest is `longest`."""
        if self.unit is not None:
            return self.name + (f" ({self.unit})" if self.unit else ""), 1.0
        unit = captions.time_unit(longest)
        return f"{self.name} ({unit.name})", unit.seconds


def _scaled(key: str, factor: float) -> Callable[[Dict[str, Any]], Optional[float]]:
    return lambda record: None if record.get(key) is None else factor * record[key]


def _held_out(key: str, factor: float) -> Callable[[Dict[str, Any]], Optional[float]]:
    """Return the key of the test images; of the validation images in a run that tests once, at its end."""
    test, validation = _scaled(f"test_{key}", factor), _scaled(f"val_{key}", factor)
    return lambda record: validation(record) if test(record) is None else test(record)


X = {
    "time": Quantity("training time", None, _scaled("train_seconds_total", 1.0)),
    "epochs": Quantity("epochs", "", _scaled("epoch", 1.0)),
    "flops": Quantity("training work", "TFLOPs", _scaled("flops_total", 1e-12)),
}
Y = {
    "accuracy": Quantity("test accuracy", "%", _held_out("accuracy", 100.0)),
    "loss": Quantity("test loss", "", _held_out("loss", 1.0)),
    "flops": Quantity("training work of an epoch", "TFLOPs", _scaled("flops", 1e-12)),
}
BARS = {
    "accuracy": Quantity("best test accuracy", "%", _scaled("accuracy_best", 100.0)),
    "time": Quantity("training time", None, _scaled("train_seconds", 1.0)),
    "flops": Quantity("training work", "TFLOPs", _scaled("flops_total", 1e-12)),
    "energy": Quantity("energy of training", "J", _scaled("energy_joules", 1.0)),
    "memory": Quantity("peak resident memory", "GB", _scaled("peak_rss_bytes", 1e-9)),
}
_BAR_LETTERS = 14  # in a line below a bar
_INSIDE = 6  # lines, more of which have their legend outside the picture


def curves(runs: List[RunFolder], x: str = "time", y: str = "accuracy") -> Drawing:
    """Draw accuracy, loss or an epoch's FLOPs over training time, epochs or FLOPs (paper Fig. 15, 16, 18).

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
    groups = replicates(runs)
    points = {name: _points(members, x, y) for name, members in groups.items()}
    x_label, x_unit = x_quantity.axis(max(values[..., 0].max() for values in points.values()))
    crowded = len(groups) > _INSIDE
    figure, axes = pyplot.subplots(figsize=(9 if crowded else 7, 4), layout="constrained")
    looks = styles(groups)
    rows: List[Dict[str, Any]] = []
    for name, members in groups.items():
        colour, marker, line, _ = looks[name]
        (xs, ys), deviation = points[name].mean(axis=0).T, spread(points[name][..., 1])
        if deviation is not None:
            band = (ys - deviation, ys + deviation)
            axes.fill_between(xs / x_unit, *band, color=colour, alpha=0.2, linewidth=0)
            name += f" ({len(members)} runs)"
        axes.plot(xs / x_unit, ys, line, marker=marker, markersize=4, color=colour, label=name)
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
    axes.set_xlabel(x_label + (", validation not counted" if x == "time" else ""))
    if any("val_accuracy" in record for run in runs for record in run.metrics()):
        y_quantity = y_quantity._replace(name=y_quantity.name.replace("test", "validation"))
    axes.set_ylabel(y_quantity.axis(0.0)[0])
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    outside: Dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)} if crowded else {}
    legend = axes.legend(fontsize=8, **outside)
    if len(groups) < len(runs):
        legend.set_title("mean over seeds; band:\nstandard deviation", FontProperties(size=7))
    captions.set_title(axes, _heading(f"{y_quantity.name} over {x_quantity.name}"), captions.subject(runs))
    return Drawing(figure, rows)


def bars(runs: List[RunFolder], y: str = "accuracy") -> Drawing:
    """Draw a bar for each scheme and rho; runs that differ in their seed only are one bar, their mean.

    Its whisker is their standard deviation, and each of them a dot.

    Args:
        runs: finished ones.
        y: a key of BARS.

    Raises:
        UsageError: an unknown quantity, or a run that is not finished.
    """
    quantity, groups = _quantity("y", y, BARS), replicates(runs)
    values = {
        name: [value for value in (quantity.of(run.summary()) for run in members) if value is not None]
        for name, members in groups.items()
    }
    y_label, unit = quantity.axis(max((value for found in values.values() for value in found), default=0.0))
    figure, axes = pyplot.subplots(figsize=(max(4.5, 1.1 * len(values) + 1), 3.7), layout="constrained")
    looks = styles(groups)
    rows = []
    for k, (name, measured) in enumerate(values.items()):
        row = {"label": name, "runs": len(groups[name])}
        if not measured:
            axes.text(
                k, 0, "not measured", rotation=90, ha="center", va="bottom", fontsize=8, color="#666666"
            )
            rows.append({**row, y: "", "standard_deviation": ""})
            continue
        mean, deviation = float(np.mean(measured)), spread(measured)
        whisker = None if deviation is None else deviation / unit
        bar = axes.bar(
            k,
            mean / unit,
            0.65,
            yerr=whisker,
            capsize=3,
            color=looks[name].colour,
            hatch=looks[name].hatch,
            edgecolor="white" if looks[name].hatch else None,
        )
        if deviation is not None:
            dots = np.linspace(k - 0.2, k + 0.2, len(measured))
            axes.plot(dots, np.array(measured) / unit, ".", color="#444444", markersize=5)
        axes.bar_label(bar, labels=[_three_figures(mean / unit)], fontsize=8, padding=2)
        rows.append({**row, y: mean, "standard_deviation": deviation and float(deviation)})
    axes.set_xticks(range(len(values)), [_in_lines(name) for name in values], fontsize=8)
    axes.set_xlim(-0.6, len(values) - 0.4)
    axes.margins(y=0.15)
    axes.set_ylabel(y_label)
    if len(groups) < len(runs):
        axes.set_xlabel("mean over seeds; dots: single runs; whisker: standard deviation", fontsize=7)
    captions.set_title(axes, _heading(quantity.name), captions.subject(runs))
    return Drawing(figure, rows)


def _points(members: List[RunFolder], x: str, y: str) -> np.ndarray:
    """Return (runs, epochs, 2): x and y of replicates, for the epochs that all of them have evaluated."""
    # The line of the solved head, of epoch 0, does not have all that an epoch has.
    points = [
        [
            (X[x].of(r), Y[y].of(r))
            for r in run.metrics()
            if r["epoch"] or None not in (X[x].of(r), Y[y].of(r))
        ]
        for run in members
    ]
    if y != "flops":  # not every epoch is evaluated
        points = [[point for point in run_points if point[1] is not None] for run_points in points]
    for run, run_points in zip(members, points):
        if not run_points and run.metrics():
            raise UsageError(f"{run.path} has no {y} to draw: it was not evaluated. Choose another --y.")
        if run_points and any(point[1] is None for point in run_points):
            raise UsageError(f"{run.path} has no {y} to draw: it had no profile. Choose another --y.")
        if not run_points or any(point[0] is None for point in run_points):
            raise UsageError(f"{run.path} has no {x} to draw {y} over: choose another --x.")
    epochs = min(map(len, points))
    return np.array([run_points[:epochs] for run_points in points], float)


def _heading(words: str) -> str:
    return words[0].upper() + words[1:]


def _in_lines(name: str) -> str:
    """Break a bar's label at its commas, and where a line would be too long."""
    return "\n".join(textwrap.fill(part, _BAR_LETTERS) for part in name.split(", "))


def _three_figures(value: float) -> str:
    """Return a number with three significant figures, or rounded to a whole number from 100 on."""
    return f"{value:.0f}" if value >= 100 else f"{value:#.3g}"


def _quantity(option: str, name: str, valid: Dict[str, Quantity]) -> Quantity:
    if name not in valid:
        raise unknown(f"--{option}", name, valid)
    return valid[name]
