"""The picture of a profile: its times by layer."""

from typing import Callable, Dict, List

import numpy as np

from elastictrainer.plotting import captions
from elastictrainer.plotting.drawing import Drawing, layer_of, layer_ticks, pyplot
from elastictrainer.profiler.profile import Profile

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
    names = list(layers)
    parts = [
        np.array([times[members].sum() for members in layers.values()])
        for times in (profile.t_forward, profile.t_dy, profile.t_dw)
    ]
    figure, (bars, from_here) = pyplot.subplots(
        2, 1, figsize=(8, 5.4), sharex=True, layout="constrained", gridspec_kw={"height_ratios": (3, 2)}
    )
    base = np.zeros(len(names))
    for (name, colour), part in zip(_PARTS.items(), parts):
        bars.bar(range(len(names)), part, 0.9, bottom=base, label=name, color=colour)
        base += part
    bars.set_ylabel("time of a layer in a step (ms)", fontsize=8)
    bars.set_ylim(0, 1.3 * base.max())  # room for the legend
    bars.legend(loc="upper left", frameon=False, fontsize=7)
    title = f"Where a training step of {profile.full_ms:.0f} ms goes, layer by layer"
    captions.set_title(bars, title, captions.profile_subject(profile.metadata))
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


def _layers(profile: Profile) -> Dict[str, List[int]]:
    """Return the tensors of each layer, layers from the input to the output."""
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
