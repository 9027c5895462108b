"""Pictures of tensors: the times of a profile by layer, and the map of what a run selected."""

from typing import Callable, Dict, List, Sequence, Tuple

import matplotlib.colors
import matplotlib.ticker
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from elastictrainer.errors import UsageError
from elastictrainer.plotting.drawing import Drawing, cut_to, evenly_spaced, label, pyplot, subject
from elastictrainer.profiler.profile import Profile
from elastictrainer.runs.run_folder import RunFolder

_UNSELECTED = "#dddddd"
_BLUES = ["#9ecae1", "#0072B2", "#001f3f"]

# Of no scheme: these stand for kinds of work.
_PARTS = {
    "forward pass": "#bbbbbb",
    "gradient passed on to the layers before (dy)": "#56B4E9",
    "gradient of its own weights, and their update (dW)": "#112288",
}


def by_layer(profile: Profile) -> Drawing:
    """Draw each layer's part of a step's time (above), and the time of training from a layer on (below).

    Layers are in the order of the model, from the input (left) to the output. The dy time of a layer is the
    time of the activation gradients that training it adds. The lower curves are the predicted step time, and
    the memory, if that layer and all after it were trained, and nothing before.
    """
    layers = _layers(profile)
    places = np.arange(len(layers))
    times = {"t_forward_ms": profile.t_forward, "t_dy_ms": profile.t_dy, "t_dw_ms": profile.t_dw}
    figure, (bars, from_here) = pyplot.subplots(2, 1, figsize=(8, 5.4), sharex=True, height_ratios=(3, 2))
    base = np.zeros(len(layers))
    for (name, colour), of_tensors in zip(_PARTS.items(), times.values()):
        part = np.array([of_tensors[members].sum() for members in layers.values()])
        bars.bar(places, part, 0.9, bottom=base, label=name, color=colour)
        base += part
    bars.set_ylabel("time of a layer in a step (ms)")
    bars.set_ylim(0, 1.45 * base.max())  # room for the legend
    bars.legend(loc="upper left")
    about = ", ".join(str(profile.metadata[k]) for k in ("model", "device") if profile.metadata.get(k))
    bars.set_title(f"Where a training step of {profile.full_ms:.0f} ms goes, layer by layer\n{about}")
    costs: Dict[str, Tuple[Callable[[np.ndarray], float], str]] = {"time": (profile.step_time, "#112288")}
    if profile.memory is not None:
        costs["memory"] = (profile.memory.step_bytes, "#D55E00")
    for name, (cost, colour) in costs.items():
        shares = 100 * _from_each_layer(layers, profile, cost) / cost(profile.connected)
        from_here.plot(places, shares, ".-", color=colour, markersize=3, label=name)
    from_here.legend(loc="lower left")
    from_here.set_ylim(0, 105)
    from_here.set_ylabel("step that trains this layer\nand all after it (% of a full step)")
    from_here.set_xlabel("layers, from the input (left) to the output")
    from_here.grid(alpha=0.3)
    layer_ticks(from_here, list(layers), 20)
    rows: List[Dict[str, object]] = []
    for i in profile.order:
        tensor = {"tensor": profile.names[i], "layer": layer_of(profile.names[i])}
        rows.append({**tensor, **{name: of_tensors[i] for name, of_tensors in times.items()}})
    return Drawing(figure, rows)


def _layers(profile: Profile) -> Dict[str, List[int]]:
    layers: Dict[str, List[int]] = {}
    for i in profile.order:
        layers.setdefault(layer_of(profile.names[i]), []).append(int(i))
    return dict(reversed(list(layers.items())))


def _from_each_layer(
    layers: Dict[str, List[int]], profile: Profile, cost: Callable[[np.ndarray], float]
) -> np.ndarray:
    """Return (layers,): the cost of a step that trains that layer and all after it."""
    mask, costs = np.zeros(len(profile), bool), []
    for members in reversed(list(layers.values())):
        mask[members] = True
        costs.append(cost(mask & profile.connected))
    return np.array(costs[::-1])


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
    figure, axes = pyplot.subplots(figsize=(8, 2.2 + 0.28 * len(records)))
    colours = matplotlib.colors.LinearSegmentedColormap.from_list("share", _BLUES)
    cmap, norm = colours.with_extremes(bad=_UNSELECTED), matplotlib.colors.Normalize(0, share.max())
    image = axes.imshow(cells, aspect="auto", cmap=cmap, norm=norm, interpolation="nearest")
    bar = figure.colorbar(image, ax=axes)
    bar.set_label("trained: time for its weight\ngradient, % of a full step")
    bar.locator = matplotlib.ticker.MaxNLocator(5)
    axes.set_xlabel("trainable tensors, from the input (left) to the output")
    layer_ticks(axes, [layer_of(name) for name in profile.names])
    words = [f"epoch {r['epoch'] + 1}, {100 * r['predicted_ratio']:.0f} % of a full step" for r in records]
    axes.set_yticks(range(len(records)), words)
    axes.set_ylabel("selection, and what its steps\nare predicted to take")
    grey = Patch(color=_UNSELECTED, label="not trained until the next selection")
    axes.legend(handles=[grey], loc="lower left", bbox_to_anchor=(0.0, 0.98), borderaxespad=0.2)
    axes.set_title(f"Tensors trained: {label(run)}\n{subject([run])}", pad=18)
    rows = [
        {
            "epoch": record["epoch"] + 1,
            "tensor": name,
            "selected": i in record["selected"],
            "share_of_full_step": share[i] / 100,
        }
        for record in records
        for i, name in enumerate(profile.names)
    ]
    return Drawing(figure, rows)


def layer_of(tensor: str) -> str:
    """Return the name of a tensor's layer: "conv1" of "conv1/kernel"."""
    return tensor.rpartition("/")[0] or tensor


def layer_ticks(axes: Axes, layers: Sequence[str], most: int = 12) -> None:
    """Put up to `most` of the layers' names, evenly spaced, along the horizontal axis: layer i at i."""
    ticks = evenly_spaced(len(layers), most)
    axes.set_xticks(ticks, [cut_to(layers[i], 28) for i in ticks], rotation=30, ha="right", fontsize=7)
