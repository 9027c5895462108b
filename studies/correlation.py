"""Correlate each metric of importance with the measured gain of a layer.

    python studies/correlation.py cub100.csv flowers12.csv --plot correlation.png

Reads what truth.py wrote. Spearman's rank correlation of a metric with the gains, over the layers at one
point of training, then the mean over the points; its interval (95 %) by drawing layers with replacement.
`repeated` is the correlation of the gains with those of other minibatches: no metric can be expected to do
better.
"""

import argparse
import csv
from collections import defaultdict

import numpy as np
from scipy.stats import spearmanr

_DRAWS = 1000
# Columns that the plot shows, and their names in docs/study-appendix.md.
_DRAWN = {
    "update_5": "the paper's",
    "rgn": "Auto-RGN",
    "fisher": "Fisher",
    "repeated": "the gain itself",
    "gradient": "gradients",
    "snr": "signal-to-noise",
    "size": "size",
    "depth": "depth",
    "weight": "weights",
    "random": "random",
}
_ABOUT = ("data", "model", "epoch", "layer", "gain_0", "gain_1")


def read(paths):
    """For each network and data set, for each point of training: columns of numbers by name."""
    rows = defaultdict(lambda: defaultdict(list))
    for path in paths:
        with open(path, newline="") as file:
            for row in csv.DictReader(file):
                rows[f"{row['model'].partition(':')[0]}, {row['data']}"][int(row["epoch"])].append(row)
    return {
        name: {
            epoch: {
                column: np.array([float(row[column]) for row in found])
                for column in found[0]
                if column.startswith("gain") or column not in _ABOUT
            }
            for epoch, found in points.items()
        }
        for name, points in rows.items()
    }


def correlation(points, metric, chosen=None):
    """The mean over the points of a metric's rank correlation with the gains, over the `chosen` layers."""
    found = []
    for columns in points.values():
        layers = slice(None) if chosen is None else chosen
        gain = (columns["gain_0"] + columns["gain_1"]) / 2
        one, other = (
            (columns["gain_0"], columns["gain_1"]) if metric == "repeated" else (columns[metric], gain)
        )
        found.append(spearmanr(one[layers], other[layers])[0])
    return float(np.mean(found))


def interval(points, metric, seed=0):
    """The middle 95 % of the correlations of layers that are drawn with replacement."""
    random = np.random.default_rng(seed)
    count = len(next(iter(points.values()))["gain_0"])
    drawn = [correlation(points, metric, random.integers(0, count, count)) for _ in range(_DRAWS)]
    return np.nanpercentile(drawn, [2.5, 97.5])  # a layer drawn alone has no rank


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="written by truth.py")
    parser.add_argument("--plot", metavar="FILE")
    options = parser.parse_args()
    networks = read(options.files)
    metrics = [name for name in next(iter(next(iter(networks.values())).values())) if "gain" not in name]
    table = {}
    for name, points in networks.items():
        layers = len(next(iter(points.values()))["gain_0"])
        print(f"{name}: {layers} layers, after {', '.join(map(str, points))} epochs of full training")
        for metric in [*metrics, "repeated"]:
            by_point = "".join(f"{correlation({0: columns}, metric):>8.2f}" for columns in points.values())
            low, high = interval(points, metric)
            mean = correlation(points, metric)
            table[name, metric] = mean, low, high
            print(f"  {metric:<12}{mean:>7.2f}   {low:>5.2f} to {high:>5.2f}   at each:{by_point}")
    if options.plot:
        draw(table, list(networks), options.plot)


def draw(table, networks, path):
    """Draw the correlations of `_DRAWN` with their intervals, a row for each."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 0.45 * len(_DRAWN) + 1.2), layout="constrained")
    for k, name in enumerate(networks):
        value, low, high = np.array([table[name, metric] for metric in _DRAWN]).T
        places = np.arange(len(_DRAWN)) + (k - (len(networks) - 1) / 2) * 0.25
        axes.errorbar(value, places, xerr=[value - low, high - value], fmt="o", capsize=3, label=name)
    axes.set_yticks(range(len(_DRAWN)), _DRAWN.values())
    axes.invert_yaxis()
    axes.axvline(0, color="grey", linewidth=0.8)
    axes.set_xlabel("rank correlation with the gain of a layer (mean over the points of training, 95 %)")
    figure.legend(loc="outside upper center", ncols=len(networks))
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
