"""The cost of a training step under each scheme and ratio: the bars of Figures 17 a-d, 18 and 19.

    python scripts/benchmarks/scheme_times.py --images path/to/images --weights path/to/mobilenet_v2.h5

Each step runs in turn with the full one, its graph warm, on one minibatch. The elastic selections are `dp`'s
for importances from real minibatches, those of random weights where there are no others: they show times, no
accuracy can follow from them. PruneTrain's step is the full step with a penalty, and is not measured.
"""

import itertools

import bench
from elastictrainer import select
from elastictrainer.profiler.calibration import ratios_to_full

SCHEMES = ("traditional-tl", "bn-bias")


def measure(made: bench.Bench, rhos: list, batches: int, seconds: float) -> list:
    """A row for each scheme and ratio of one model."""
    from elastictrainer.selection import schemes

    profile = made.profile
    importance = made.evaluator()(itertools.islice(made.minibatches(), batches))
    masks = {"full": profile.connected}
    masks.update(
        {
            f"elastic, rho {rho:g}": select(profile, importance, rho).mask
            for rho in rhos
            if rho >= profile.rho_min
        }
    )
    for name in SCHEMES:
        mask = schemes.create(name).mask(made.model) & profile.connected
        if mask.any():
            masks[name] = mask
    batch = next(made.minibatches())
    rows = []
    for name, mask in masks.items():
        ratio = 1.0
        if name != "full":
            (ratio,) = ratios_to_full(made.steps.get, [mask], profile.connected, batch, seconds).tolist()
        rows.append(
            {
                "model": made.name,
                "scheme": name,
                "tensors": int(mask.sum()),
                "ratio": ratio,
                "ms": ratio * profile.full_ms,
                "predicted": profile.step_time(mask) / profile.full_ms,
                "gflops": profile.step_flops(mask) / 1e9,
            }
        )
    return rows


def draw(rows: list, path: str) -> None:
    """Time and FLOPs of a step over those of a full step, a group of bars for each model."""
    from elastictrainer.plotting.drawing import Drawing, of_scheme, pyplot, save

    models = list(dict.fromkeys(row["model"] for row in rows))
    names = list(dict.fromkeys(row["scheme"] for row in rows))
    figure, panels = pyplot.subplots(1, 2, figsize=(10, 3.4), layout="constrained", sharey=True)
    for panel, key, words in zip(
        panels, ("ratio", "gflops"), ("time of a step / full step", "FLOPs of a step / full step")
    ):
        for k, name in enumerate(names):
            scheme = name.partition(", rho ")[0]
            found = {row["model"]: row for row in rows if row["scheme"] == name}
            whole = {row["model"]: row[key] for row in rows if row["scheme"] == "full"}
            at = [
                i + (k - (len(names) - 1) / 2) * 0.8 / len(names)
                for i, model in enumerate(models)
                if model in found
            ]
            panel.bar(
                at,
                [found[m][key] / whole[m] for m in models if m in found],
                0.8 / len(names),
                label=name,
                color=of_scheme(scheme).colour,
            )
        panel.set_xticks(range(len(models)), models)
        panel.set_ylabel(words)
        panel.grid(alpha=0.3, axis="y")
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(names), fontsize=8
    )
    save(Drawing(figure, rows), path)


def main() -> None:
    parser = bench.parser(__doc__, "scheme_times.json")
    parser.add_argument("--rho", type=float, nargs="+", default=[0.35, 0.4, 0.5, 0.6, 0.7])
    parser.add_argument("--seconds", type=float, default=15.0, help="of each comparison")
    parser.add_argument("--plot", help="picture to draw (.png, .pdf, .svg)")
    options = parser.parse_args()
    columns = {"model": "<14", "scheme": "<20", "tensors": ">8", "ms": ">9.1f", "ratio": ">8.3f"}
    results = bench.Results(options, {**columns, "predicted": ">11.3f", "gflops": ">9.1f"})
    for name in options.models:
        made = bench.prepare(name, options)
        for row in measure(made, options.rho, options.importance_batches, options.seconds):
            results.add(row)
    if options.plot:
        draw(results.rows, options.plot)


if __name__ == "__main__":
    main()
