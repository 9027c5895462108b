"""What a run selected, and why: maps with a column for each tensor and a row for each selection."""

from typing import Any, Dict, List, Tuple

import matplotlib
import numpy as np

from elastictrainer.errors import UsageError
from elastictrainer.plotting.drawing import COLOURS, UNSELECTED, Drawing, label, pyplot, tensor_ticks
from elastictrainer.profiler.timings import TensorTimings
from elastictrainer.runs.run_folder import RunFolder


def selection(run: RunFolder) -> Drawing:
    """Which tensors each selection chose, coloured by their dW time in % of a full step (paper Fig. 21).

    Raises:
        UsageError: the run's scheme does not select.
    """
    records, profile = _selections(run)
    share = 100 * profile.t_dw / profile.full_ms
    cells = np.full((len(records), len(profile)), np.nan)
    for row, record in zip(cells, records):
        row[record["selected"]] = share[record["selected"]]
    colours = matplotlib.colors.LinearSegmentedColormap.from_list("share", ["#9ecae1", COLOURS[0], "#001f3f"])
    figure, axes = _map(run, records, profile, cells, colours, "dW time, % of a full step")
    axes.set_title(f"selected tensors, {label(run)}")
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
    """The importance of every tensor at each selection, divided by the largest one of that selection (log10).

    Tensors whose importance is zero or negative are grey.

    Raises:
        UsageError: the run's scheme does not select.
    """
    records, profile = _selections(run)
    records = [r for r in records if not r.get("corrected")]  # such a selection has no scores of its own
    scores = np.array([r["importance"] for r in records])
    relative = scores / np.maximum(scores.max(axis=1, keepdims=True), 1e-300)
    cells = np.where(relative > 0, np.log10(np.maximum(relative, 1e-6)), np.nan)
    colours = matplotlib.colormaps["cividis"]
    figure, axes = _map(run, records, profile, cells, colours, "importance over the\nlargest, log10")
    axes.set_title(f"tensor importance, {label(run)}")
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
    run: RunFolder,
    records: List[Dict[str, Any]],
    profile: TensorTimings,
    cells: np.ndarray,
    colours: Any,
    bar_label: str,
) -> Tuple[Any, Any]:
    """Draw `cells` (selections, N), in the order of `model.trainable_weights`; NaN is grey."""
    figure, axes = pyplot.subplots(figsize=(7, 1.6 + 0.3 * len(records)), layout="constrained")
    image = axes.imshow(
        cells, aspect="auto", cmap=colours.with_extremes(bad=UNSELECTED), interpolation="nearest"
    )
    bar = figure.colorbar(image, ax=axes)
    bar.set_label(bar_label, fontsize=7)
    bar.ax.tick_params(labelsize=7)
    axes.set_yticks(range(len(records)), [_row_label(r) for r in records])
    axes.set_ylabel("from epoch (+: corrected):\npredicted", fontsize=8)
    axes.set_xlabel("trainable tensor, from the input to the output")
    tensor_ticks(axes, list(profile.names))
    return figure, axes


def _row_label(record: Dict[str, Any]) -> str:
    return f"{record['epoch'] + 1}{'+' if record.get('corrected') else ''}: {record['predicted_ratio']:.2f}"
