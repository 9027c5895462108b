"""Compare rules of selection that had the same time.

    python studies/rules.py studies/rules-mobilenetv2-cub100.csv --plot rules.png

Prints for each file and rho the accuracy of every scheme, and by how much it is ahead of a reference
(`--reference`, freeze-below): the mean of the differences of the same seeds, and its standard error.
"""

import argparse
import csv
import re
from collections import defaultdict
from pathlib import Path

import numpy as np

from elastictrainer.plotting.drawing import Drawing, pyplot, save
from elastictrainer.plotting.replicates import spread
from elastictrainer.plotting.styles import of_scheme

_RUN = re.compile(r"(?P<scheme>.+?)(-rho)?-(?P<rho>0\.[0-9]+)")  # of sweep.sh, or of real_images.sh


def read(path):
    """Return accuracy in per cent by seed, by scheme, by rho; rhos from the largest."""
    found = defaultdict(lambda: defaultdict(dict))
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            run = _RUN.fullmatch(row["run"])
            if run:
                found[run["rho"]][run["scheme"]][row["seed"]] = float(row["accuracy"])
    return {rho: found[rho] for rho in sorted(found, key=float, reverse=True)}


def ahead(accuracies, reference):
    """Return a scheme's lead in points: the mean over the seeds of both, and its standard error."""
    off = [accuracies[seed] - reference[seed] for seed in sorted(accuracies.keys() & reference.keys())]
    error = spread(off) / np.sqrt(len(off)) if len(off) > 1 else float("nan")
    return (float(np.mean(off)) if off else float("nan")), error


def by_mean(schemes):
    """Return names of schemes, the most accurate first."""
    return sorted(schemes, key=lambda name: -np.mean(list(schemes[name].values())))


def print_table(name, rho, schemes, reference):
    print(f"\n{name}, rho {rho}\n")
    print(f"| scheme | seeds | accuracy at the end | ahead of `{reference}` |\n|---|---|---|---|")
    for scheme in by_mean(schemes):
        values = list(schemes[scheme].values())
        off, error = ahead(schemes[scheme], schemes.get(reference, {}))
        lead = "" if scheme == reference or np.isnan(off) else f"{off:+.1f}"
        lead += "" if not lead or np.isnan(error) else f" ± {error:.1f}"
        deviation = spread(values)
        words = f"{np.mean(values):.1f}" + (f" ± {deviation:.1f}" if deviation is not None else "")
        print(f"| `{scheme}` | {len(values)} | {words} % | {lead} |")


def draw(files, path):
    """Draw a panel for each file and rho: a line for each scheme, the most accurate on top."""
    panels = [(name, rho, schemes) for name, rhos in files.items() for rho, schemes in rhos.items()]
    most = max(len(schemes) for _, _, schemes in panels)
    columns = max(len(rhos) for rhos in files.values())
    figure, grid = pyplot.subplots(
        -(-len(panels) // columns),
        columns,
        figsize=(5 * columns, (0.3 * most + 1) * -(-len(panels) // columns)),
        layout="constrained",
        squeeze=False,
    )
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    for axes, (name, rho, schemes) in zip(grid.flat, panels):
        order = by_mean(schemes)
        for place, scheme in enumerate(order):
            values, style = list(schemes[scheme].values()), of_scheme(scheme)
            axes.plot(values, [place] * len(values), "o", color=style.colour, markersize=4, alpha=0.5)
            axes.plot(np.mean(values), place, "|", color=style.colour, markersize=14, markeredgewidth=2.5)
        axes.set_yticks(range(len(order)), order)
        axes.invert_yaxis()
        axes.grid(axis="x", alpha=0.3)
        axes.set_xlabel("test accuracy at the end (%)")
        axes.set_title(f"{name}, rho {rho}")
    figure.suptitle("strokes: means; dots: single seeds", fontsize=9)
    save(Drawing(figure, []), path)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "files", nargs="+", metavar="CSV", help="of sweep.sh with OPTION=rho, or of real_images.sh"
    )
    parser.add_argument("--reference", default="freeze-below", help="the scheme to compare with")
    parser.add_argument("--plot", metavar="FILE", help="of a picture")
    options = parser.parse_args()
    files = {Path(path).stem.removeprefix("rules-"): read(path) for path in options.files}
    for name, rhos in files.items():
        for rho, schemes in rhos.items():
            print_table(name, rho, schemes, options.reference)
    if options.plot:
        draw(files, options.plot)


if __name__ == "__main__":
    main()
