"""Ways of fine-tuning against each other: the same head, the same time, each at its best of several rates.

    python scripts/benchmarks/race.py --ways elastic freeze-below full short --rates 1e-4 3e-4 1e-3 \
        --seeds 0 1 2 --rho 0.3 --epochs 10 --csv race.csv -- --model demo --dataset demo

`elastic`, `freeze-below` and any other scheme get `--rho`; `full` trains all tensors for `--epochs`, `short`
for the share `--rho` of them, and `head-alone` solves the head. Options after -- go to et-train in all runs.
Accuracy is that of the test images in per cent, `fall` by how much it is below the solved head's. Finished
runs of the output folder are kept. The table has each way's best rate, by the mean over the seeds.

    python scripts/benchmarks/race.py --csv race_cub100.csv --plot race.png --title "MobileNetV2 on CUB100"

With --plot nothing is trained: the file's rows of these ways become a picture of accuracy over minutes, at
the best rate of each setting: of the whole command, where the file has a column `wall_s`, else of training.
--profile-s is added to the time of runs by `--rho`, which need a profile before.
"""

import argparse
import csv
import subprocess
from collections import defaultdict
from pathlib import Path

import numpy as np

from elastictrainer.plotting.drawing import Drawing, of_scheme, pyplot, save
from elastictrainer.runs.files import write_csv
from elastictrainer.runs.run_folder import RunFolder

_TICKS = (0.1, 0.2, 0.5, 1, 2, 3, 5, 10, 20, 40, 60, 120, 240)
_LATE, _BY_TIME = ("last-layers", "freeze-below"), "--time"  # which trains the one or the other
_TRAINS = {  # what the picture says of a way
    _BY_TIME: "late layers (--time)",
    "elastic": "chosen tensors (--rho)",
    "freeze-below": "late layers (--rho)",
    "full": "everything",
    "short": "everything",
}
_COLUMNS = ["way", "setting", "rate", "seed", "accuracy", "head", "fall", "training_s"]


def options_of(way, rho, epochs):
    """Return et-train's options of a way to train in the share `rho` of `epochs` of full training."""
    if way == "full":
        return ["--scheme", "full", "--epochs", str(epochs)]
    if way == "short":
        return ["--scheme", "full", "--epochs", str(max(1, round(rho * epochs)))]
    return ["--scheme", way, "--epochs", str(epochs), *([] if way == "head-alone" else ["--rho", str(rho)])]


def train(folder, options):
    """Train into `folder`, if that was not done, and return what its row says of the result."""
    if not (folder / "summary.json").exists():
        command = ["et-train", *options, "--output", str(folder), "--overwrite"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    run = RunFolder(folder)
    accuracy = 100 * run.summary()["accuracy"]
    head = next((100 * m["test_accuracy"] for m in run.metrics() if m["epoch"] == 0), float("nan"))
    seconds = run.summary()["train_seconds"]
    known = np.isfinite(head)
    fall = f"{max(0.0, head - accuracy):.2f}" if known else ""
    return [f"{accuracy:.2f}", f"{head:.2f}" if known else "", fall, f"{seconds:.1f}"]


def best(rows):
    """Return for each way and setting its best rate, the accuracies there, and the worst fall at any rate."""
    found, falls = defaultdict(dict), defaultdict(list)
    for way, setting, rate, _, accuracy, _, fall, _ in rows:
        found[way, setting].setdefault(rate, []).append(float(accuracy))
        falls[way, setting].append(float(fall or "nan"))
    return [
        (*key, *max(by_rate.items(), key=lambda item: np.mean(item[1])), max(falls[key]))
        for key, by_rate in found.items()
    ]


def _is_share(setting):
    return setting.startswith(("0.", "1.0"))


def draw(path, ways, picture, title, profile_s):
    """Draw accuracy over minutes: seeds small, a setting's mean large, the means of a way joined."""
    runs = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))  # by way, setting and rate
    with open(path, newline="") as file:
        rows = csv.DictReader(file)
        seconds = "wall_s" if "wall_s" in (rows.fieldnames or ()) else "training_s"
        for row in rows:
            if row["way"] in ways and row[seconds]:
                before_s = profile_s if _is_share(row["setting"]) else 0.0
                point = (before_s + float(row[seconds])) / 60, float(row["accuracy"])
                by_time = row["way"] in _LATE and not _is_share(row["setting"])
                way = _BY_TIME if by_time else row["way"]
                runs[way][row["setting"]][row["rate"]].append(point)
    figure, axes = pyplot.subplots(figsize=(8, 4.8), layout="constrained")
    labelled = set()  # a share once for all ways
    for way in (way for way in (_BY_TIME, *ways) if way in runs):
        best_rate = {
            name: max(map(np.array, rates.values()), key=lambda points: points[:, 1].mean())
            for name, rates in runs[way].items()
        }
        style = of_scheme(way)
        seeds, means = np.concatenate(list(best_rate.values())), {n: p.mean(0) for n, p in best_rate.items()}
        axes.plot(*seeds.T, ".", color=style.colour, alpha=0.4)
        joined, label = np.array(sorted(map(tuple, means.values()))), _TRAINS.get(way, way)
        axes.plot(*joined.T, ":", marker=style.marker, color=style.colour, label=label)
        for name, point in means.items():
            if _is_share(name) and name not in labelled:
                labelled.add(name)
                place = {"xytext": (8, -12), "textcoords": "offset points"}
                axes.annotate(f"rho {name}", point, fontsize=8, color="0.25", **place)
    axes.margins(y=0.1)
    axes.set_xscale("log")
    least, most = axes.get_xlim()
    axes.set_xlim(0.8 * least, 1.5 * most)
    ticks = [minutes for minutes in _TICKS if least < minutes < most]
    axes.set_xticks(ticks, labels=map(str, ticks), minor=False)
    axes.set_xticks([], minor=True)
    of = "the whole command" if seconds == "wall_s" else "training: evaluation not counted"
    axes.set_xlabel(f"minutes (log scale) of {of}")
    axes.set_ylabel("accuracy on all test images (%)")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", frameon=False)
    axes.set_title(title)
    save(Drawing(figure, []), picture)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ways", nargs="+", default=["elastic", "freeze-below", "full", "short"])
    parser.add_argument("--rates", nargs="+", default=["1e-4", "3e-4", "1e-3"])
    parser.add_argument("--seeds", nargs="+", default=["0"])
    parser.add_argument("--rho", type=float, nargs="+", default=[0.5])
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--output", type=Path, default=Path("benchmark-output/race"))
    parser.add_argument("--csv", type=Path, default=Path("benchmark-output/race.csv"))
    parser.add_argument("--plot", metavar="FILE", help="of a picture of the CSV file's rows")
    parser.add_argument("--title", default="", help="of the picture")
    parser.add_argument("--profile-s", type=float, default=0.0, help="of a profile, for the picture")
    parser.add_argument("options", nargs="*", help="of et-train, after --")
    given = parser.parse_args()
    if given.plot:
        return draw(given.csv, given.ways, given.plot, given.title, given.profile_s)
    rows = []
    for way in given.ways:
        for rho in given.rho[:1] if way in ("full", "head-alone") else given.rho:
            for rate in given.rates[:1] if way == "head-alone" else given.rates:
                for seed in given.seeds:
                    options = ["--learning-rate", rate, "--seed", seed, *options_of(way, rho, given.epochs)]
                    folder = given.output / f"{way}-{rho}-{rate}-{seed}"
                    setting = {"full": f"{given.epochs} epochs", "head-alone": ""}.get(way, str(rho))
                    rows.append([way, setting, rate, seed, *train(folder, [*given.options, *options])])
                    print(*rows[-1], flush=True)
                    write_csv(given.csv, _COLUMNS, rows)
    print(f"{'way':14}{'setting':>10}{'best rate':>11}{'accuracy':>16}{'worst fall':>12}")
    for way, setting, rate, accuracies, fall in best(rows):
        spread = f"±{np.std(accuracies, ddof=1):.2f}" if len(accuracies) > 1 else ""
        print(f"{way:14}{setting:>10}{rate:>11}{np.mean(accuracies):10.2f}{spread:>6}{fall:12.2f}")


if __name__ == "__main__":
    main()
