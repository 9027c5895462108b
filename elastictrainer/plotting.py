"""Pictures of profiles and run folders."""

import math
from pathlib import Path
from typing import Any, List, Union

import matplotlib
import numpy as np

from elastictrainer.errors import UsageError
from elastictrainer.files import written_beside
from elastictrainer.profiler.timings import TensorTimings
from elastictrainer.run_folder import RunFolder

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  (the backend is chosen first: a small device has no display)

# Okabe and Ito's colours: told apart by colour-blind readers.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
FORMATS = (".png", ".pdf", ".svg")


def save(figure: Any, path: Union[str, Path]) -> None:
    """Write a figure in the format its file ending says; UsageError for another ending."""
    if Path(path).suffix.lower() not in FORMATS:
        raise UsageError(f"cannot draw into {path}; valid endings: {' '.join(FORMATS)}.")
    with written_beside(path) as beside:
        figure.savefig(beside, dpi=150)
    pyplot.close(figure)


def timings(profile: TensorTimings) -> Any:
    """A step's time by tensor from output (left) to input: forward, dy and dW work, and their running sum."""
    order = profile.order
    figure, (bars, total) = pyplot.subplots(2, 1, figsize=(7, 5), sharex=True, layout="constrained")
    place = np.arange(len(order))
    base = np.zeros(len(order))
    parts = {"forward": profile.t_forward, "dy": profile.t_dy, "dW and update": profile.t_dw}
    for (label, times), colour in zip(parts.items(), COLOURS):
        bars.bar(place, times[order], 1.0, bottom=base, label=label, color=colour)
        total.plot(place, np.cumsum(times[order]), label=label, color=colour)
        base += times[order]
    bars.set_ylabel("time of a step (ms)")
    bars.set_title(f"{profile.metadata.get('model', 'model')}: full step {profile.full_ms:.1f} ms")
    bars.legend()
    total.set_ylabel("cumulated (ms)")
    total.set_xlabel("tensor, from the output to the input")
    return figure


def curves(runs: List[RunFolder]) -> Any:
    """Test accuracy over training time, a line per run."""
    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    longest = 0.0
    for k, run in enumerate(runs):
        records = run.metrics()
        seconds = np.array([r["train_seconds_total"] for r in records])
        longest = max(longest, seconds.max(initial=0.0))
        axes.plot(
            seconds,
            [100 * r["test_accuracy"] for r in records],
            marker="osD^vPX"[k % 7],
            markersize=4,
            color=COLOURS[k % len(COLOURS)],
            label=_label(run),
        )
    if longest > 7200:
        axes.xaxis.set_major_formatter(lambda seconds, _: f"{seconds / 3600:g}")
    axes.set_xlabel("training time without validation " + ("(h)" if longest > 7200 else "(s)"))
    axes.set_ylabel("test accuracy (%)")
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


def selection(run: RunFolder) -> Any:
    """Which tensors each selection of a run chose (paper Fig. 21)."""
    records = [r for r in run.selections() if "selected" in r]
    if not records:
        raise UsageError(f"{run.path} has no selection to draw: its scheme does not select.")
    profile = TensorTimings.load(run.profile_path)
    chosen = np.zeros((len(records), len(profile)))
    for row, record in zip(chosen, records):
        row[record["selected"]] = 1
    figure, axes = pyplot.subplots(figsize=(7, 1.4 + 0.3 * len(records)), layout="constrained")
    axes.imshow(chosen, aspect="auto", cmap=matplotlib.colors.ListedColormap(["#eeeeee", COLOURS[0]]), vmin=0, vmax=1,
                interpolation="nearest")  # fmt: skip
    axes.set_yticks(range(len(records)), [f"epoch {r['epoch'] + 1}: {r['predicted_ratio']:.2f}" for r in records])
    every = max(1, math.ceil(len(profile) / 8))
    places = list(range(0, len(profile), every))
    axes.set_xticks(places, [profile.names[i].split("/")[0] for i in places], rotation=30, ha="right", fontsize=7)
    axes.set_xlabel("trainable tensor, from the input to the output")
    axes.set_ylabel("from epoch: ratio", fontsize=8)
    axes.set_title(f"selected tensors, {_label(run)}")
    return figure


def _label(run: RunFolder) -> str:
    import yaml

    settings = yaml.safe_load(run.config_path.read_text(encoding="utf-8"))
    selects = settings["scheme"].startswith("elastic")
    return f"{settings['scheme']}, rho {settings['rho']:g}" if selects else settings["scheme"]
