"""Draw the plots of docs/study.md that need nothing but the rows of studies/*.csv.

    python studies/plots.py --output docs

Lines connect means over seeds; dots are single seeds.
"""

import argparse
import csv
import re
from collections import defaultdict
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot

FOLDER = Path(__file__).resolve().parent
ACCURACY = "test accuracy at the end (%)"


def accuracies(name, pattern, **columns):
    """Return accuracies in per cent by the group `x` of a pattern that matches whole names of runs.

    Args:
        name: CSV file in this folder, without its ending.
        pattern: regular expression with a group named x.
        columns: further columns and the values that rows must have in them.
    """
    found = defaultdict(list)
    with open(FOLDER / f"{name}.csv", newline="") as file:
        for row in csv.DictReader(file):
            run = re.fullmatch(pattern, row["run"])
            if run and all(row[column] == value for column, value in columns.items()):
                found[run["x"]].append(float(row["accuracy"]))
    return dict(found)


def learning_rates():
    """Return three schemes over the learning rate."""
    file = "learning-rate-cub100"
    lines = {
        "full training": accuracies(file, r"full-(?P<x>\de-\d)"),
        "elastic, rho 0.25": accuracies(file, r"elastic-0.25-(?P<x>\de-\d)"),
        "freeze-below, rho 0.25": accuracies(file, r"freeze-below-0.25-(?P<x>\de-\d)"),
    }
    for label, scheme in (("elastic, rho 0.25", "elastic"), ("freeze-below, rho 0.25", "freeze-below")):
        [lines[label]["2e-4"]] = accuracies("rules-mobilenetv2-cub100", rf"{scheme}-rho-(?P<x>0.25)").values()
    [lines["elastic, rho 0.25"]["1e-4"]] = accuracies(
        "interval-cub100", "elastic-interval-(?P<x>6)", rho="0.25"
    ).values()
    return lines, "learning rate"


def intervals():
    """Return two budgets over the interval."""
    pattern = r"elastic-interval-(?P<x>\d+)"
    rhos = ("0.5", "0.25")
    return {
        f"rho {rho}": accuracies("interval-cub100", pattern, rho=rho) for rho in rhos
    }, "epochs an interval"


def minibatches():
    """Return one budget over the number of probe minibatches."""
    found = accuracies("importance-batches-cub100", r"elastic-importance-batches-(?P<x>\d+)")
    return {"rho 0.25": found}, "probe minibatches"


def epochs():
    """Return three networks over the number of epochs in which a quarter of the time is spent."""
    twelve, file = r"elastic-(rho-)?(?P<x>0.25)", "epochs-cub100"
    lines = {"MobileNetV2, 128x128": accuracies(file, r"mobilenetv2-elastic-(?P<x>0.5-6|0.75-4)-epochs")}
    lines["MobileNetV2, 128x128"] |= accuracies(
        "learning-rate-cub100", r"elastic-(?P<x>0.375-8)-epochs-2e-4"
    ) | accuracies("rules-mobilenetv2-cub100", twelve)
    lines["SqueezeNet, 128x128"] = accuracies(
        file, r"squeezenet-elastic-(?P<x>0.5-6|0.75-4)-epochs"
    ) | accuracies("rules-squeezenet-cub100", twelve)
    lines["MobileNetV2, 224x224"] = accuracies(
        file, r"mobilenetv2-224px-elastic-(?P<x>0.5-6)-epochs"
    ) | accuracies("../scripts/benchmarks/real_images", twelve)
    return {
        label: {x.rpartition("-")[2].replace("0.25", "12"): seeds for x, seeds in line.items()}
        for label, line in lines.items()
    }, "epochs, together a quarter of the time of 12 epochs of full training"


def branches():
    """Return the runs of the two networks with branches or loops."""
    order = ("full", "full, half the epochs", "elastic", "freeze-below", "traditional-tl")
    files = {"graph network": "no-chains-graph", "GRU": "no-chains-gru"}
    lines = {label: accuracies(file, "(?P<x>.*)") for label, file in files.items()}
    return {label: {name: found[name] for name in order} for label, found in lines.items()}, None


def forgetting():
    """Return accuracy of old and new classes over the number of stored images of each old class."""
    with open(FOLDER / "continual-cub100.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["change"] == "classes"]
    lines = {
        label: {row["kept"]: [float(row[column])] for row in rows}
        for column, label in (
            ("old before", "old classes, before the second run"),
            ("old", "old classes"),
            ("new", "new classes"),
        )
    }
    return lines, "stored images of each old class"


def draw(lines, x_label, path, limits=(None, None)):
    """Draw lines over numbers in their order, equally spaced; or points over names if `x_label` is None.

    Args:
        limits: lowest and highest accuracy of the axis; None: by the values.
    """
    figure, axes = pyplot.subplots(figsize=(6, 3.4), layout="constrained")
    names = list(dict.fromkeys(x for line in lines.values() for x in line))
    if x_label is not None:
        names.sort(key=float)
    for label, line in lines.items():
        places = [names.index(x) for x in sorted(line, key=names.index)]
        values = [line[names[place]] for place in places]
        style = "o" if x_label is None else "o-"
        [drawn] = axes.plot(places, [np.mean(v) for v in values], style, label=label)
        for place, seeds in zip(places, values):
            axes.plot([place] * len(seeds), seeds, ".", color=drawn.get_color(), alpha=0.5)
    axes.set_xticks(range(len(names)), names, rotation=0 if x_label else 15)
    axes.set_ylabel(ACCURACY)
    axes.set_xlabel(x_label or "")
    axes.set_ylim(*limits)
    axes.grid(axis="y", alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", default="docs", help="folder of the pictures")
    folder = Path(parser.parse_args().output)
    draw(*learning_rates(), folder / "study-learning-rate.png", limits=(74, None))
    draw(*intervals(), folder / "study-interval.png")
    draw(*minibatches(), folder / "study-minibatches.png", limits=(74, 90))
    draw(*epochs(), folder / "study-epochs.png")
    draw(*forgetting(), folder / "study-forgetting.png")
    draw(*branches(), folder / "study-branches.png")


if __name__ == "__main__":
    main()
