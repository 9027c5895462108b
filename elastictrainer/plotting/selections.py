"""Maps of a run's selections and importances: a column for each tensor, a row for each selection."""

from typing import Any, Dict, List, Tuple

import matplotlib.colors
import matplotlib.ticker
import numpy as np
from matplotlib.patches import Patch

from elastictrainer.errors import UsageError
from elastictrainer.plotting import captions
from elastictrainer.plotting.drawing import UNSELECTED, Drawing, label, layer_of, layer_ticks, pyplot
from elastictrainer.profiler.timings import TensorTimings
from elastictrainer.runs.run_folder import RunFolder

_LEAST = 1e-6  # of the largest importance; what is lower is drawn like this
_BLUES = ["#9ecae1", "#0072B2", "#001f3f"]


def selection(run: RunFolder) -> Drawing:
    """Draw the tensors of each selection, coloured by their dW time in % of a full step (paper Fig. 21).

    Raises:
        UsageError: the run's scheme does not select.
    """
    records, profile = _selections(run)
    share = 100 * profile.t_dw / profile.full_ms
    cells = np.full((len(records), len(profile)), np.nan)
    for row, record in zip(cells, records):
        row[record["selected"]] = share[record["selected"]]
    colours = matplotlib.colors.LinearSegmentedColormap.from_list("share", _BLUES)
    scale = matplotlib.colors.Normalize(0, share.max())
    figure, axes, bar = _map(records, profile, cells, colours, scale)
    axes.set_yticks(range(len(records)), [_row_label(r) for r in records], fontsize=8)
    axes.set_ylabel("selection, and what its steps\nare predicted to take", fontsize=7)
    bar.set_label("trained: time for its weight\ngradient, % of a full step", fontsize=7)
    bar.locator = matplotlib.ticker.MaxNLocator(5)
    _legend(axes, "not trained until the next selection")
    captions.set_title(axes, f"Tensors trained: {label(run)}", captions.subject([run]), pad=18)
    rows = [
        {
            "epoch": r["epoch"] + 1,
            "tensor": name,
            "selected": i in set(r["selected"]),
            "share_of_full_step": share[i] / 100,
        }
        for r in records
        for i, name in enumerate(profile.names)
    ]
    return Drawing(figure, rows)


def importance(run: RunFolder) -> Drawing:
    """Draw the importance of every tensor at each selection, divided by the largest one of that selection.

    The colour is logarithmic. Tensors whose importance is zero or negative are grey.

    Raises:
        UsageError: the run's scheme does not select.
    """
    records, profile = _selections(run)
    scores = np.array([r["importance"] for r in records])
    relative = scores / np.maximum(scores.max(axis=1, keepdims=True), 1e-300)
    cells = np.where(relative > 0, np.maximum(relative, _LEAST), np.nan)
    scale = matplotlib.colors.LogNorm(min(0.1, np.nanmin(cells, initial=1.0)), 1.0)
    figure, axes, bar = _map(records, profile, cells, matplotlib.colormaps["cividis"], scale)
    axes.set_yticks(range(len(records)), [f"epoch {r['epoch'] + 1}" for r in records], fontsize=8)
    bar.set_label("importance; 1: the largest\nof the selection", fontsize=7)
    bar.ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    bar.ax.yaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())
    _legend(axes, "zero or negative: training it would not lower the loss")
    captions.set_title(axes, f"Importance of the tensors: {label(run)}", captions.subject([run]), pad=18)
    rows = [
        {"epoch": r["epoch"] + 1, "tensor": name, "importance": r["importance"][i]}
        for r in records
        for i, name in enumerate(profile.names)
    ]
    return Drawing(figure, rows)


def _selections(run: RunFolder) -> Tuple[List[Dict[str, Any]], TensorTimings]:
    records = [r for r in run.selections() if "selected" in r]
    if not records:
        raise UsageError(f"{run.path} has no selection to draw: its scheme does not select.")
    return records, TensorTimings.load(run.profile_path)


def _map(
    records: List[Dict[str, Any]],
    profile: TensorTimings,
    cells: np.ndarray,
    colours: Any,
    scale: Any,
) -> Tuple[Any, Any, Any]:
    """Draw `cells` (selections, N), in the order of `model.trainable_weights`; NaN is grey.

    Returns:
        figure, axes and colour bar.
    """
    figure, axes = pyplot.subplots(figsize=(8, 2.2 + 0.28 * len(records)), layout="constrained")
    image = axes.imshow(
        cells, aspect="auto", cmap=colours.with_extremes(bad=UNSELECTED), norm=scale, interpolation="nearest"
    )
    bar = figure.colorbar(image, ax=axes)
    bar.ax.tick_params(labelsize=7)
    axes.set_xlabel("trainable tensors, from the input (left) to the output", fontsize=8)
    layer_ticks(axes, [layer_of(name) for name in profile.names])
    return figure, axes, bar


def _legend(axes: Any, grey: str) -> None:
    """Say below the title what grey stands for."""
    axes.legend(
        handles=[Patch(color=UNSELECTED, label=grey)],
        loc="lower left",
        bbox_to_anchor=(0.0, 0.98),
        frameon=False,
        fontsize=7,
        borderaxespad=0.2,
    )


def _row_label(record: Dict[str, Any]) -> str:
    return f"epoch {record['epoch'] + 1}, {100 * record['predicted_ratio']:.0f} % of a full step"
