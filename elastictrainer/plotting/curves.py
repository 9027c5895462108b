"""The picture of training: accuracy, loss or work over time, epochs or work."""

from typing import Dict, List, NamedTuple, Sequence, Tuple

import numpy as np

from elastictrainer.errors import UsageError, unknown
from elastictrainer.plotting.drawing import Drawing, labels, pyplot, styles, subject, time_unit
from elastictrainer.runs.run_folder import RunFolder


class Quantity(NamedTuple):
    """Something to draw: a value of the records in metrics.jsonl."""

    name: str
    unit: str
    # Of its value in a record; the first that has one counts. A run that tests once, at its end, has
    # validation images in its metrics.
    keys: Tuple[str, ...]
    factor: float = 1.0  # of the value there

    def of(self, record: Dict[str, float]) -> float:
        """Return the value in a record; NaN if it was not measured."""
        found = (record[key] for key in self.keys if record.get(key) is not None)
        return self.factor * next(found, np.nan)


X = {
    "time": Quantity("training time", "s", ("train_seconds_total",)),
    "epochs": Quantity("epochs", "", ("epoch",)),
    "flops": Quantity("training work", "TFLOPs", ("flops_total",), 1e-12),
}
Y = {
    "accuracy": Quantity("test accuracy", "%", ("test_accuracy", "val_accuracy"), 100.0),
    "loss": Quantity("test loss", "", ("test_loss", "val_loss")),
    "flops": Quantity("training work of an epoch", "TFLOPs", ("flops",), 1e-12),
}


def curves(runs: Sequence[RunFolder], x: str = "time", y: str = "accuracy") -> Drawing:
    """Draw accuracy, loss or an epoch's FLOPs over training time, epochs or FLOPs (paper Fig. 15, 16, 18).

    `x` and `y` are keys of X and Y; UsageError for another, or a run in which it was not measured.
    """
    for option, chosen, valid in (("--x", x, X), ("--y", y, Y)):
        if chosen not in valid:
            raise unknown(option, chosen, valid)
    points = [_points(run, x, y) for run in runs]
    unit, divisor = X[x].unit, 1.0
    if x == "time":
        unit, divisor = time_unit(max(xs.max() for xs, _ in points))
    figure, axes = pyplot.subplots(figsize=(9, 4))
    rows: List[Dict[str, object]] = []
    for run, name, (colour, marker, line), (xs, ys) in zip(runs, labels(runs), styles(runs), points):
        axes.plot(xs / divisor, ys, line, marker=marker, markersize=4, color=colour, label=name)
        about = {"run": str(run.path), "label": name}
        rows += [{**about, x: at, y: value} for at, value in zip(xs.tolist(), ys.tolist())]
    validated = any("val_accuracy" in record for run in runs for record in run.metrics())
    y_name = Y[y].name.replace("test", "validation") if validated else Y[y].name
    axes.set_xlabel(_with_unit(X[x].name, unit) + (", validation not counted" if x == "time" else ""))
    axes.set_ylabel(_with_unit(y_name, Y[y].unit))
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    axes.set_title(f"{y_name.capitalize()} over {X[x].name}\n{subject(runs)}")
    return Drawing(figure, rows)


def _with_unit(name: str, unit: str) -> str:
    return f"{name} ({unit})" if unit else name


def _points(run: RunFolder, x: str, y: str) -> Tuple[np.ndarray, np.ndarray]:
    """Return the values of the epochs that were evaluated; of the solved head where it has both."""
    values = [("images" in record, X[x].of(record), Y[y].of(record)) for record in run.metrics()]
    points = np.array([v for v in values if not np.isnan(v[2]) and not (v[0] and np.isnan(v[1]))])
    if not len(points) or np.isnan(points).any():
        raise UsageError(
            f"{run.path} has no {x if len(points) else y} to draw {y} over {x}: it was not measured, or not "
            "evaluated. Choose another --x or --y."
        )
    return points[:, 1], points[:, 2]
