"""Pictures of a profile: its times by tensor, and predicted against measured step times."""

from typing import List

import numpy as np

from elastictrainer.errors import UsageError
from elastictrainer.plotting.drawing import COLOURS, MARKERS, Drawing, pyplot
from elastictrainer.profiler.timings import TensorTimings


def timings(profile: TensorTimings) -> Drawing:
    """Each tensor's forward, dy and dW time in ms (above), and their running sums (below).

    Tensors are in the order of `profile.order`: from the output (left) to the input. The dy time of a tensor
    is the time of the activation gradients (dy) that it adds; the dW time is that of its weight gradient and
    update.
    """
    order = profile.order
    figure, (bars, total) = pyplot.subplots(2, 1, figsize=(7, 5), sharex=True, layout="constrained")
    position = np.arange(len(order))
    base = np.zeros(len(order))
    parts = {"forward": profile.t_forward, "dy": profile.t_dy, "dW and update": profile.t_dw}
    for (name, times), colour in zip(parts.items(), COLOURS):
        bars.bar(position, times[order], 1.0, bottom=base, label=name, color=colour)
        total.plot(position, np.cumsum(times[order]), label=name, color=colour)
        base += times[order]
    bars.set_ylabel("time of a step (ms)")
    bars.set_title(f"{profile.metadata.get('model', 'model')}: full step {profile.full_ms:.1f} ms")
    bars.set_ylim(0, 1.2 * base.max())  # room for the legend
    bars.legend(ncols=3, loc="upper left", frameon=False)
    total.set_ylabel("cumulative (ms)")
    total.set_xlabel("tensor, from the output to the input")
    rows = [
        {
            "tensor": profile.names[i],
            "t_forward_ms": profile.t_forward[i],
            "t_dy_ms": profile.t_dy[i],
            "t_dw_ms": profile.t_dw[i],
        }
        for i in order
    ]
    return Drawing(figure, rows)


def prediction(profiles: List[TensorTimings]) -> Drawing:
    """Predicted against measured step times of random selections, both divided by the full step time.

    Args:
        profiles: made with `et-profile --validate`.

    Raises:
        UsageError: a profile holds no measured selection.
    """
    figure, axes = pyplot.subplots(figsize=(4.5, 4.5), layout="constrained")
    rows = []
    for k, profile in enumerate(profiles):
        name = str(profile.metadata.get("model", "model"))
        if not profile.validation:
            raise UsageError(
                f"the profile of {name} holds no measured selection: et-profile --validate 12 measures some."
            )
        predicted, measured = (
            np.array([v[key] for v in profile.validation]) / profile.full_ms
            for key in ("predicted_ms", "measured_ms")
        )
        median = 100 * np.median(np.abs(profile.validation_errors))
        axes.plot(
            measured,
            predicted,
            MARKERS[k % len(MARKERS)],
            color=COLOURS[k % len(COLOURS)],
            markersize=5,
            label=f"{name} (median error {median:.1f} %)",
        )
        rows += [
            {"model": name, **{key: v[key] for key in ("predicted_ms", "measured_ms")}}
            for v in profile.validation
        ]
    axes.axline((0, 0), slope=1, color="#888888", linewidth=0.8)
    axes.set_xlabel("measured step time over the full step")
    axes.set_ylabel("predicted step time over the full step")
    axes.set_xlim(0, None)
    axes.set_ylim(0, None)
    axes.set_aspect("equal")
    axes.legend(fontsize=8)
    return Drawing(figure, rows)
