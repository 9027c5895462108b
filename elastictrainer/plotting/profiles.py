"""Pictures of a profile: its times by layer, and predicted against measured step times."""

from typing import Callable, Dict, List

import numpy as np

from elastictrainer.errors import UsageError
from elastictrainer.plotting import captions
from elastictrainer.plotting.drawing import Drawing, layer_of, layer_ticks, pyplot
from elastictrainer.profiler.timings import TensorTimings

# Of no scheme: these stand for kinds of work.
_PARTS = {
    "forward pass": "#bbbbbb",
    "gradient passed on to the layers before (dy)": "#56B4E9",
    "gradient of its own weights, and their update (dW)": "#112288",
}


def timings(profile: TensorTimings) -> Drawing:
    """Draw each layer's part of a step's time (above), and the time of training from a layer on (below).

    Layers are in the order of the model, from the input (left) to the output. The dy time of a layer is the
    time of the activation gradients that training it adds. The lower curves are the predicted step time, and
    the memory, if that layer and all after it were trained, and nothing before.
    """
    layers = _layers(profile)
    names = list(layers)
    parts = [
        np.array([times[members].sum() for members in layers.values()])
        for times in (profile.t_forward, profile.t_dy, profile.t_dw)
    ]
    figure, (bars, from_here) = pyplot.subplots(
        2, 1, figsize=(8, 5.4), sharex=True, layout="constrained", gridspec_kw={"height_ratios": (3, 2)}
    )
    base = np.zeros(len(names))
    for (name, colour), times in zip(_PARTS.items(), parts):
        bars.bar(range(len(names)), times, 0.9, bottom=base, label=name, color=colour)
        base += times
    bars.set_ylabel("time of a layer in a step (ms)", fontsize=8)
    bars.set_ylim(0, 1.3 * base.max())  # room for the legend
    bars.legend(loc="upper left", frameon=False, fontsize=7)
    captions.set_title(
        bars,
        f"Where a training step of {profile.full_ms:.0f} ms goes, layer by layer",
        captions.profiled(profile.metadata),
    )
    shares = 100 * _from_each_layer(layers, profile, profile.step_time) / profile.full_ms
    from_here.plot(range(len(names)), shares, ".-", color="#112288", markersize=3, label="time")
    if profile.memory is not None:
        held = _from_each_layer(layers, profile, profile.memory.step_bytes)
        held *= 100 / profile.memory.step_bytes(profile.connected)
        from_here.plot(range(len(names)), held, ".-", color="#D55E00", markersize=3, label="memory")
        from_here.legend(loc="lower left", frameon=False, fontsize=7)
    from_here.set_ylim(0, 105)
    from_here.set_ylabel("step that trains this layer\nand all after it (% of a full step)", fontsize=8)
    from_here.set_xlabel("layers, from the input (left) to the output", fontsize=8)
    from_here.grid(alpha=0.3)
    layer_ticks(from_here, names, 20)
    rows = [
        {
            "tensor": profile.names[i],
            "layer": layer_of(profile.names[i]),
            "t_forward_ms": profile.t_forward[i],
            "t_dy_ms": profile.t_dy[i],
            "t_dw_ms": profile.t_dw[i],
        }
        for i in profile.order
    ]
    return Drawing(figure, rows)


def _layers(profile: TensorTimings) -> Dict[str, List[int]]:
    """Return the tensors of each layer, layers from the input to the output."""
    layers: Dict[str, List[int]] = {}
    for i in profile.order:
        layers.setdefault(layer_of(profile.names[i]), []).append(int(i))
    return dict(reversed(list(layers.items())))


def _from_each_layer(
    layers: Dict[str, List[int]], profile: TensorTimings, cost: Callable[[np.ndarray], float]
) -> np.ndarray:
    """Return (layers,): the cost of a step that trains that layer and all after it."""
    mask, costs = np.zeros(len(profile), bool), []
    for members in reversed(list(layers.values())):
        mask[members] = True
        costs.append(cost(mask & profile.connected))
    return np.array(costs[::-1])


def prediction(profiles: List[TensorTimings]) -> Drawing:
    """Draw predicted against measured step times of random selections, both in % of the full step time.

    Args:
        profiles: made with `et-profile --validate`.

    Raises:
        UsageError: a profile holds no measured selection.
    """
    figure, axes = pyplot.subplots(figsize=(5, 5), layout="constrained")
    rows = []
    for k, profile in enumerate(profiles):
        name = captions.model_name(profile.metadata.get("model")) or "model"
        if not profile.validation:
            raise UsageError(
                f"the profile of {name} holds no measured selection: et-profile --validate 12 measures some."
            )
        predicted, measured = (
            100 * np.array([v[key] for v in profile.validation]) / profile.full_ms
            for key in ("predicted_ms", "measured_ms")
        )
        median = 100 * np.median(np.abs(profile.validation_errors))
        axes.plot(
            measured,
            predicted,
            "osD^vP"[k % 6],
            markersize=5,
            label=f"{name}: a selection of tensors (median error {median:.1f} %)",
        )
        rows += [
            {"model": name, **{key: v[key] for key in ("predicted_ms", "measured_ms")}}
            for v in profile.validation
        ]
    axes.axline((0, 0), slope=1, color="#888888", linewidth=0.8, label="predicted as measured")
    axes.set_xlabel("measured step time (% of the full step)")
    axes.set_ylabel("predicted step time (% of the full step)")
    axes.set_xlim(0, None)
    axes.set_ylim(0, None)
    axes.set_aspect("equal")
    axes.legend(fontsize=7, loc="upper left")
    about = list(dict.fromkeys(captions.profiled(profile.metadata) for profile in profiles))
    captions.set_title(axes, "Step times, predicted and measured", "\n".join(about))
    return Drawing(figure, rows)
