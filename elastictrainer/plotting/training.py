"""Pictures of training: curves over time, epochs or FLOPs, and bars that compare finished runs."""

import textwrap
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import numpy as np
from matplotlib.font_manager import FontProperties

from elastictrainer.errors import UsageError, unknown
from elastictrainer.plotting import captions
from elastictrainer.plotting.drawing import Drawing, pyplot
from elastictrainer.plotting.replicates import replicates, spread
from elastictrainer.plotting.styles import of_scheme, styles
from elastictrainer.runs.run_folder import RunFolder


class Quantity(NamedTuple):
    """Something to draw.

    Attributes:
        name: for the title.
        unit: of the axis; None: a unit of time, as long as the times are.
        keys: where its value is in a record of metrics.jsonl or in a summary: under the first key that has
            one. A run that tests once, at its end, has validation images in its metrics.
        factor: of the value there.
    """

    name: str
    unit: Optional[str]
    keys: Tuple[str, ...]
    factor: float = 1.0

    def of(self, record: Dict[str, Any]) -> Optional[float]:
        """Return the value in a record; None if it was not measured."""
        return next((self.factor * record[key] for key in self.keys if record.get(key) is not None), None)

    def axis(self, longest: float) -> Tuple[str, float]:
        """Return the axis' words, and the divisor of the values there, of which the largest is `longest`."""
        if self.unit is not None:
            return self.name + (f" ({self.unit})" if self.unit else ""), 1.0
        unit = captions.time_unit(longest)
        return f"{self.name} ({unit.name})", unit.seconds


X = {
    "time": Quantity("training time", None, ("train_seconds_total",)),
    "epochs": Quantity("epochs", "", ("epoch",)),
    "flops": Quantity("training work", "TFLOPs", ("flops_total",), 1e-12),
}
Y = {
    "accuracy": Quantity("test accuracy", "%", ("test_accuracy", "val_accuracy"), 100.0),
    "loss": Quantity("test loss", "", ("test_loss", "val_loss")),
    "flops": Quantity("training work of an epoch", "TFLOPs", ("flops",), 1e-12),
}
BARS = {
    "accuracy": Quantity("test accuracy", "%", ("accuracy",), 100.0),
    "time": Quantity("training time", None, ("train_seconds",)),
    "flops": Quantity("training work", "TFLOPs", ("flops_total",), 1e-12),
    "energy": Quantity("energy of training", "J", ("energy_joules",)),
    "memory": Quantity("peak resident memory", "GB", ("peak_rss_bytes",), 1e-9),
}
_BAR_LETTERS = 14  # in a line below a bar


def curves(runs: List[RunFolder], x: str = "time", y: str = "accuracy") -> Drawing:
    """Draw accuracy, loss or an epoch's FLOPs over training time, epochs or FLOPs (paper Fig. 15, 16, 18).

    Runs that differ in their seed only are one line: their mean at every epoch, in a band of one standard
    deviation. `x` and `y` are keys of X and Y; UsageError for another, or a run in which it was not measured.
    """
    x_quantity, y_quantity = _quantity("x", x, X), _quantity("y", y, Y)
    groups = replicates(runs)
    points = {name: _points(members, x, y) for name, members in groups.items()}
    x_label, x_unit = x_quantity.axis(max(values[..., 0].max() for values in points.values()))
    figure, axes = pyplot.subplots(figsize=(9, 4), layout="constrained")
    looks = styles(groups)
    rows: List[Dict[str, Any]] = []
    for name, members in groups.items():
        colour, marker, line = looks[name]
        (xs, ys), deviation = points[name].mean(axis=0).T, spread(points[name][..., 1])
        if deviation is not None:
            band = (ys - deviation, ys + deviation)
            axes.fill_between(xs / x_unit, *band, color=colour, alpha=0.2, linewidth=0)
            name += f" ({len(members)} runs)"
        axes.plot(xs / x_unit, ys, line, marker=marker, markersize=4, color=colour, label=name)
        paths = " ".join(str(run.path) for run in members)
        deviations = [None] * len(xs) if deviation is None else deviation.tolist()
        for at, value, of_epoch in zip(xs.tolist(), ys.tolist(), deviations):
            rows.append({"run": paths, "label": name, x: at, y: value, "standard_deviation": of_epoch})
    axes.set_xlabel(x_label + (", validation not counted" if x == "time" else ""))
    if any("val_accuracy" in record for run in runs for record in run.metrics()):
        y_quantity = y_quantity._replace(name=y_quantity.name.replace("test", "validation"))
    axes.set_ylabel(y_quantity.axis(0.0)[0])
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    legend = axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    if len(groups) < len(runs):
        legend.set_title("mean over seeds; band:\nstandard deviation", FontProperties(size=7))
    captions.set_title(axes, f"{y_quantity.name} over {x_quantity.name}".capitalize(), captions.subject(runs))
    return Drawing(figure, rows)


def bars(runs: List[RunFolder], y: str = "accuracy") -> Drawing:
    """Draw a bar for each scheme and rho; runs that differ in their seed only are one bar, their mean.

    Its whisker is their standard deviation, and each of them a dot. `y` is a key of BARS; UsageError for
    another, or a run that is not finished.
    """
    quantity, groups = _quantity("y", y, BARS), replicates(runs)
    values = {
        name: [value for value in (quantity.of(run.summary()) for run in members) if value is not None]
        for name, members in groups.items()
    }
    y_label, unit = quantity.axis(max((value for found in values.values() for value in found), default=0.0))
    figure, axes = pyplot.subplots(figsize=(max(4.5, 1.1 * len(values) + 1), 3.7), layout="constrained")
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
        colour = of_scheme(groups[name][0].config()["scheme"]).colour
        bar = axes.bar(k, mean / unit, 0.65, yerr=whisker, capsize=3, color=colour)
        if deviation is not None:
            dots = np.linspace(k - 0.2, k + 0.2, len(measured))
            axes.plot(dots, np.array(measured) / unit, ".", color="#444444", markersize=5)
        three_digits = f"{mean / unit:.0f}" if mean >= 100 * unit else f"{mean / unit:#.3g}"
        axes.bar_label(bar, labels=[three_digits], fontsize=8, padding=2)
        rows.append({**row, y: mean, "standard_deviation": deviation and float(deviation)})
    axes.set_xticks(range(len(values)), [_in_lines(name) for name in values], fontsize=8)
    axes.set_xlim(-0.6, len(values) - 0.4)
    axes.margins(y=0.15)
    axes.set_ylabel(y_label)
    if len(groups) < len(runs):
        axes.set_xlabel("mean over seeds; dots: single runs; whisker: standard deviation", fontsize=7)
    captions.set_title(axes, quantity.name.capitalize(), captions.subject(runs))
    return Drawing(figure, rows)


def _points(members: List[RunFolder], x: str, y: str) -> np.ndarray:
    """Return (runs, evaluations, 2): x and y of replicates, for as many evaluations as each of them has."""
    points = []
    for run in members:
        xs, ys = [], []
        for record in run.metrics():
            at, value = X[x].of(record), Y[y].of(record)
            if record["epoch"] == 0 and None in (at, value):
                continue  # the solved head does not have all that an epoch has
            if value is None and y != "flops":
                continue  # an epoch that was not evaluated
            xs.append(at)
            ys.append(value)
        for name, values in ((y, ys), (x, xs)):
            if not values or None in values:
                raise UsageError(
                    f"{run.path} has no {name} to draw {y} over {x}: it was not measured, or not evaluated. "
                    "Choose another --x or --y."
                )
        points.append(list(zip(xs, ys)))
    evaluations = min(map(len, points))
    return np.array([run_points[:evaluations] for run_points in points], float)


def _in_lines(name: str) -> str:
    """Break a bar's label at its commas, and where a line would be too long."""
    return "\n".join(textwrap.fill(part, _BAR_LETTERS) for part in name.split(", "))


def _quantity(option: str, name: str, valid: Dict[str, Quantity]) -> Quantity:
    if name not in valid:
        raise unknown(f"--{option}", name, valid)
    return valid[name]
