"""One row of a CSV file for each run, and their means over seeds.

    python scripts/benchmarks/summarise_runs.py runs/seed*/* --csv runs.csv

Rows of other runs that the file has stay, so that runs of several sittings come together; without runs the
means are printed of what the file has. A run is known by the names of its two innermost folders,
`seed1/elastic-0.5`. `full s` is what full training would have taken, as the run's own full steps measured
it.
"""

import argparse
import csv
from collections import defaultdict
from pathlib import Path

import numpy as np

from elastictrainer.runs.files import write_text
from elastictrainer.runs.run_folder import RunFolder

_COLUMNS = {
    "accuracy": lambda s: 100 * s["accuracy_last"],
    "training s": lambda s: s["train_seconds"],
    "full s": lambda s: s["full_training_seconds"],
    "achieved": lambda s: s["rho_achieved"],
    "predicted": lambda s: s["rho_predicted"],
    "replayed": lambda s: 100 * s["replayed_share"],
    "recorded MB": lambda s: 1e-6 * s["recorded_bytes"],
    "selecting": lambda s: (
        100 * (s["importance_seconds"] + s["selection_seconds"] + s["trace_seconds"]) / s["train_seconds"]
    ),
}


def row_of(folder):
    run, summary = Path(folder), RunFolder(folder).summary()
    values = {name: of(summary) for name, of in _COLUMNS.items()}
    return {
        "run": run.name,
        "seed": run.parent.name.removeprefix("seed"),
        **{name: "" if value is None else f"{value:.5g}" for name, value in values.items()},
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
        lines = [",".join(["run", "seed", *_COLUMNS])]
        lines += [",".join(rows[key].values()) for key in sorted(rows)]
        write_text(path, "\n".join(lines) + "\n")
    runs = defaultdict(list)
    for name, seed in sorted(rows):
        runs[name].append(rows[name, seed])
    print(f"{'run':<24}{'seeds':>6}" + "".join(f"{name:>16}" for name in _COLUMNS))
    for name, found in runs.items():
        cells = []
        for column in _COLUMNS:
            values = [float(row[column]) for row in found if row[column]]
            spread = f" ± {np.std(values, ddof=1):.2g}" if len(values) > 1 else ""
            cells.append(f"{np.mean(values):.4g}{spread}" if values else "-")
        print(f"{name:<24}{len(found):>6}" + "".join(f"{cell:>16}" for cell in cells))


if __name__ == "__main__":
    main()
