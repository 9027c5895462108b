"""The map of a run's selections: a column for each tensor, a row for each selection."""

import matplotlib.colors
import matplotlib.ticker
import numpy as np
from matplotlib.patches import Patch

from elastictrainer.errors import UsageError
from elastictrainer.plotting import captions
from elastictrainer.plotting.drawing import Drawing, label, layer_of, layer_ticks, pyplot
from elastictrainer.profiler.profile import Profile
from elastictrainer.runs.run_folder import RunFolder

_UNSELECTED = "#dddddd"
_BLUES = ["#9ecae1", "#0072B2", "#001f3f"]


def selection(run: RunFolder) -> Drawing:
    """Draw the tensors of each selection, coloured by their dW time in % of a full step (paper Fig. 21).

    Columns are in the order of `model.trainable_weights`. UsageError where the run's scheme does not select.
    """
    records = [r for r in run.selections() if "selected" in r]
    if not records:
        raise UsageError(f"{run.path} has no selection to draw: its scheme does not select.")
    profile = Profile.load(run.profile_path)
    share = 100 * profile.t_dw / profile.full_ms
    cells = np.full((len(records), len(profile)), np.nan)  # NaN is grey
    for row, record in zip(cells, records):
        row[record["selected"]] = share[record["selected"]]
    figure, axes = pyplot.subplots(figsize=(8, 2.2 + 0.28 * len(records)), layout="constrained")
    colours = matplotlib.colors.LinearSegmentedColormap.from_list("share", _BLUES)
    cmap, norm = colours.with_extremes(bad=_UNSELECTED), matplotlib.colors.Normalize(0, share.max())
    image = axes.imshow(cells, aspect="auto", cmap=cmap, norm=norm, interpolation="nearest")
    bar = figure.colorbar(image, ax=axes)
    bar.ax.tick_params(labelsize=7)
    bar.set_label("trained: time for its weight\ngradient, % of a full step", fontsize=7)
    bar.locator = matplotlib.ticker.MaxNLocator(5)
    axes.set_xlabel("trainable tensors, from the input (left) to the output", fontsize=8)
    layer_ticks(axes, [layer_of(name) for name in profile.names])
    words = [f"epoch {r['epoch'] + 1}, {100 * r['predicted_ratio']:.0f} % of a full step" for r in records]
    axes.set_yticks(range(len(records)), words, fontsize=8)
    axes.set_ylabel("selection, and what its steps\nare predicted to take", fontsize=7)
    axes.legend(
        handles=[Patch(color=_UNSELECTED, label="not trained until the next selection")],
        loc="lower left",
        bbox_to_anchor=(0.0, 0.98),
        frameon=False,
        fontsize=7,
        borderaxespad=0.2,
    )
    captions.set_title(axes, f"Tensors trained: {label(run)}", captions.subject([run]), pad=18)
    rows = []
    for record in records:
        epoch, selected = record["epoch"] + 1, set(record["selected"])
        for i, name in enumerate(profile.names):
            about = {"epoch": epoch, "tensor": name, "selected": i in selected}
            rows.append({**about, "share_of_full_step": share[i] / 100})
    return Drawing(figure, rows)
