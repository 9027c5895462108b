"""Time asked and time taken by `et-train --time`, by the wall clock outside of the process.

    python scripts/benchmarks/time_kept.py --times 1m 3m 10m --loads quiet slower busy -- \
        --model mobilenetv2 --weights path/to/mobilenet_v2.h5 --dataset path/to/cub100

Loads: `quiet` adds none; `slower` starts another computing process on each of the same cores, when half
of the time is over; `busy` starts them at once. Each run measures its own short profile, so give no --profile
and begin in a folder without profiles. "head" and "accuracy" are those on the test images, in per cent.
Rows are added to --csv; a row of the same name is replaced.
"""

import csv
import os
import subprocess
import sys
import time
from pathlib import Path

import bench
from elastictrainer.experiment.settings import parse_seconds
from elastictrainer.runs.files import write_csv
from elastictrainer.runs.run_folder import RunFolder

_COLUMNS = ["run", "asked", "load", "status", "taken s", "head", "accuracy", "epochs"]


def occupied():
    """Start a process that computes on each core this process may use; they have to be killed."""
    return [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in os.sched_getaffinity(0)]


def measure(asked, load, options, folder):
    """Train in the time `asked` under `load`, and return the row."""
    command = ["et-train", *options, "--time", asked, "--output", str(folder), "--overwrite"]
    begun, others = time.perf_counter(), occupied() if load == "busy" else []
    run = subprocess.Popen(command)
    try:
        if load == "slower":
            try:
                run.wait(0.5 * parse_seconds(asked))
            except subprocess.TimeoutExpired:
                others = occupied()
        status = run.wait()
    finally:
        for other in others:
            other.kill()
    row = {"asked": asked, "load": load, "status": status, "taken s": f"{time.perf_counter() - begun:.1f}"}
    if not status:
        metrics, summary = RunFolder(folder).metrics(), RunFolder(folder).summary()
        heads = [m["test_accuracy"] for m in metrics if not m["epoch"]]  # None: there was no time to test it
        row["head"] = f"{100 * heads[0]:.1f}" if any(heads) else ""
        row["accuracy"] = f"{100 * summary['accuracy']:.1f}"
        row["epochs"] = summary["epochs"]
    return row


def add(row, path):
    """Write `row` into a CSV file, in the place of an earlier one of the same run."""
    rows = list(csv.DictReader(path.open(encoding="utf-8", newline=""))) if path.exists() else []
    others = [other for other in rows if any(other[name] != row[name] for name in _COLUMNS[:3])]
    write_csv(path, _COLUMNS, [[r.get(name, "") for name in _COLUMNS] for r in [*others, row]])


def main():
    parser = bench.bare_parser(__doc__)
    parser.add_argument("--times", nargs="+", default=["1m", "3m", "10m"])
    parser.add_argument("--loads", nargs="+", default=["quiet"], choices=["quiet", "slower", "busy"])
    parser.add_argument("--name", default="elastic", help="of these rows")
    parser.add_argument("--output", type=Path, default=Path("benchmark-output/time-kept"))
    parser.add_argument("--csv", type=Path, default=Path("benchmark-output/time-kept.csv"))
    parser.add_argument("options", nargs="+", help="of et-train, after --")
    given = parser.parse_args()
    for load in given.loads:
        for asked in given.times:
            folder = given.output / f"{given.name}-{asked}-{load}"
            row = {"run": given.name, **measure(asked, load, given.options, folder)}
            print(row, flush=True)
            add(row, given.csv)


if __name__ == "__main__":
    main()
