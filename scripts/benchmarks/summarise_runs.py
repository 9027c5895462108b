"""One row of a CSV file for each run, and their means over seeds.

    python scripts/benchmarks/summarise_runs.py runs/seed*/* --csv runs.csv
    python scripts/benchmarks/summarise_runs.py --csv runs.csv --plot runs.png --title "MobileNetV2 on CUB100"

Rows of other runs that the file has stay; without runs the means of what it has are printed. A run is known
by the names of its two innermost folders, `seed1/elastic-0.5`. Accuracy, replayed, selecting and head (the
solved head's accuracy) are per cent; head share and overhead (all but training steps) are shares of full
training's time. Of a run such as `full-6` all shares are of the time of its own epochs. Achieved and
predicted are rho; recorded MB is the largest recording; selecting is importance, selection and tracing in per
cent of training time.

With --plot a picture is drawn: accuracy over the share of full training's time. Of runs named `full-6` the
share is that of their epochs, of the others what they achieved. A star is the solved head. A run named such
as `elastic-0.5-without` is drawn hollow.
"""

import csv
import re
from collections import defaultdict
from pathlib import Path

import numpy as np

import bench
from elastictrainer.plotting.drawing import Drawing, of_scheme, pyplot, save
from elastictrainer.runs.files import write_csv
from elastictrainer.runs.run_folder import RunFolder

_NAME = re.compile(r"([A-Za-z:_-]+?)(?:-([0-9.]+))?(-without)?")  # scheme, rho or epochs, without cache
_DRAWN = {"ByLayer": "layers", "Random": "random"}  # names of the study's schemes on the pages
_COLUMNS = (
    *("accuracy", "training s", "achieved", "predicted", "replayed", "recorded MB", "selecting"),
    *("head", "head share", "overhead"),
)


def spread(values):
    """The sample standard deviation; None for a single value."""
    return np.std(values, ddof=1) if len(values) > 1 else None


def row_of(folder):
    path, run = Path(folder), RunFolder(folder)
    found, head = run.summary(), next((m for m in run.metrics() if m["epoch"] == 0), {})
    took_s, full_s, seconds = found["train_seconds"], found["full_training_seconds"], found["seconds"]
    selecting_s = sum(found[part] for part in ("importance_seconds", "selection_seconds", "trace_seconds"))
    overhead_s = took_s - seconds.get("steps", 0.0) - seconds.get("cache_read", 0.0)
    replayed = found.get("cached_share") or None
    values = (
        *((found.get("accuracy"), 100), (took_s, 1), (found.get("rho_achieved"), 1)),
        *((found.get("rho_predicted"), 1), (replayed, 100), (replayed and found["cache_bytes"], 1e-6)),
        *((selecting_s, 100 / took_s), (head.get("test_accuracy"), 100)),
        *(
            (value if full_s else None, 1 / (full_s or 1))
            for value in (head.get("train_seconds"), overhead_s)
        ),
    )
    cells = ("" if value is None else f"{scale * value:.5g}" for value, scale in values)
    return {"run": path.name, "seed": path.parent.name.removeprefix("seed"), **dict(zip(_COLUMNS, cells))}


def draw(runs, path, title):
    """Accuracy over share of full training's time: a line for a scheme, a point for a rho or its epochs.

    Args:
        runs: rows of replicates by their name, such as `elastic-0.5`, `full-6` or `traditional-tl`; runs
            that know no share of full training's time are left out, and those with another learning rate.
    """
    named = [(match.groups(), runs[match.string]) for match in map(_NAME.fullmatch, runs) if match]
    longest = max(int(number) for (scheme, number, _), _ in named if scheme == "full" and number)
    lines = defaultdict(list)
    for (scheme, number, without), found in named:
        of_epochs = scheme == "full" and number  # what it achieved is over the time of these epochs
        if all(row["achieved"] for row in found):
            share = np.mean([float(row["achieved"]) for row in found])
        elif of_epochs:
            share = 1.0
        else:
            continue
        if of_epochs:
            share *= int(number) / longest
        lines[scheme, bool(without)].append((100 * share, [float(row["accuracy"]) for row in found]))
    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    for scheme, without in sorted(lines, key=lambda line: (line[0] in _DRAWN, line)):  # the study's last
        points = sorted(lines[scheme, without], key=lambda point: point[0])
        counts = sorted({len(accuracies) for _, accuracies in points})
        words = str(counts[0]) if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"
        style = of_scheme(scheme)
        axes.errorbar(
            [share for share, _ in points],
            [np.mean(accuracies) for _, accuracies in points],
            yerr=[spread(accuracies) or 0.0 for _, accuracies in points],
            color=style.colour,
            marker=style.marker,
            fillstyle="none" if without else "full",
            capsize=3,
            label=f"{_DRAWN.get(scheme, scheme)}{' --activation-cache off' if without else ''} "
            f"({words} seed{'' if words == '1' else 's'})",
        )
        for share, accuracies in points:
            shares = [share] * len(accuracies)
            axes.plot(shares, accuracies, style.marker, color=style.colour, markersize=3, alpha=0.5)
    heads = [
        row for (scheme, *_), found in named if scheme != "full" for row in found if row.get("head share")
    ]
    if heads:
        share, accuracy = (np.mean([float(row[name]) for row in heads]) for name in ("head share", "head"))
        axes.plot(100 * share, accuracy, "*", color="black", markersize=12, label="the solved head alone")
    axes.set_xlim(0, 105)
    axes.set_xlabel("training time in % of full training's, validation not counted")
    axes.set_ylabel("test accuracy at the end (%)")
    axes.grid(alpha=0.3)
    legend = axes.legend(loc="lower right", title="mean; bars: standard deviation; dots: single runs")
    legend.get_title().set_fontsize(8)
    axes.set_title(title)
    save(Drawing(figure, []), path)


def main():
    parser = bench.bare_parser(__doc__)
    parser.add_argument("runs", nargs="*", metavar="RUN")
    parser.add_argument("--csv", required=True, metavar="FILE")
    parser.add_argument("--plot", metavar="FILE", help="of a picture")
    parser.add_argument("--title", default="", help="of the picture")
    options = parser.parse_args()
    path = Path(options.csv)
    rows = {}
    if path.exists():
        with open(path, newline="") as file:
            rows = {(row["run"], row["seed"]): row for row in csv.DictReader(file)}
    for folder in options.runs:
        row = row_of(folder)
        rows[row["run"], row["seed"]] = row
    if options.runs:
        write_csv(path, ["run", "seed", *_COLUMNS], (rows[key].values() for key in sorted(rows)))
    runs = defaultdict(list)
    for name, seed in sorted(rows):
        runs[name].append(rows[name, seed])
    print(f"{'run':<24}{'seeds':>6}" + "".join(f"{name:>18}" for name in _COLUMNS))
    for name, found in runs.items():
        cells = []
        for column in _COLUMNS:
            values = [float(row[column]) for row in found if row.get(column)]
            off = spread(values) if values else None
            cells.append(
                f"{np.mean(values):.4g}" + (f" ± {off:.2g}" if off is not None else "") if values else "-"
            )
        print(f"{name:<24}{len(found):>6}" + "".join(f"{cell:>18}" for cell in cells))
    if options.plot and not any(name.startswith("full-") for name in runs):
        parser.error(f"{path} has no run of full training, such as full-12; leave --plot out, or add one.")
    if options.plot:
        draw(runs, options.plot, options.title)


if __name__ == "__main__":
    main()
