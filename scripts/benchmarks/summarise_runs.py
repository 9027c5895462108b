"""One row of a CSV file for each run, and their means over seeds.

    python scripts/benchmarks/summarise_runs.py runs/seed*/* --csv runs.csv

Rows of other runs that the file has stay, so that runs of several sittings come together; without runs the
means are printed of what the file has. A run is known by the names of its two innermost folders,
`seed1/elastic-0.5`. Accuracy, replayed and selecting are per cent; `et-plot table` explains the words.
"""

import argparse
import csv
from collections import defaultdict
from pathlib import Path

import numpy as np

from elastictrainer.plotting import table
from elastictrainer.plotting.replicates import spread
from elastictrainer.runs.files import write_csv
from elastictrainer.runs.run_folder import RunFolder

# By the column here: the key in `table.rows`, and what it is multiplied by.
_COLUMNS = {
    "accuracy": ("last", 100),
    "training s": ("train_seconds", 1),
    "achieved": ("achieved", 1),
    "predicted": ("predicted", 1),
    "replayed": ("replayed", 100),
    "recorded MB": ("recorded_mb", 1),
    "selecting": ("selecting", 100),
}


def row_of(folder):
    run, (found,) = Path(folder), table.rows([RunFolder(folder)])
    values = {name: (found[key], scale) for name, (key, scale) in _COLUMNS.items()}
    return {
        "run": run.name,
        "seed": run.parent.name.removeprefix("seed"),
        **{name: "" if value is None else f"{scale * value:.5g}" for name, (value, scale) in values.items()},
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="*", metavar="RUN")
    parser.add_argument("--csv", required=True, metavar="FILE")
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
            values = [float(row[column]) for row in found if row[column]]
            off = spread(values) if values else None
            cells.append(
                f"{np.mean(values):.4g}" + (f" ± {off:.2g}" if off is not None else "") if values else "-"
            )
        print(f"{name:<24}{len(found):>6}" + "".join(f"{cell:>18}" for cell in cells))


if __name__ == "__main__":
    main()
