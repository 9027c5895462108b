"""Train the embedded task for 200 epochs, selecting anew at each, and watch what the process holds on to.

    python scripts/benchmarks/long_run.py --output long_run.json

After every epoch: resident memory, open files, threads, the size of logs and of checkpoints. Memory is to
stay within 2 % of what it was after 20 epochs, files and threads are to stay as they are, checkpoints too.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from elastictrainer.runs import environment
from elastictrainer.runs.files import write_json

SETTLED = 20


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--output", default="long_run.json", help="JSON file to write")
    parser.add_argument("rest", nargs="*", help="further options of et-train, after --")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="long-run-") as folder:
        rows = watch(Path(folder), arguments.epochs, arguments.rest)
    shown = [
        row
        for row in rows
        if row["epoch"] in (1, SETTLED, len(rows)) or not row["epoch"] % (arguments.epochs // 8 or 1)
    ]
    print(
        f"{'epoch':>6}{'memory MB':>11}{'files':>7}{'threads':>9}{'logs kB':>9}{'events kB':>11}"
        f"{'checkpoints MB':>16}"
    )
    for row in shown:
        print(
            f"{row['epoch']:>6}{row['rss'] / 1e6:>11.1f}{row['files']:>7}{row['threads']:>9}"
            f"{row['logs'] / 1e3:>9.0f}{row['events'] / 1e3:>11.0f}"
            f"{row['checkpoints'] / 1e6:>16.2f}"
        )
    result = {"rows": rows, **environment.describe()}
    if len(rows) > SETTLED:
        settled, rest = rows[SETTLED - 1], rows[SETTLED:]
        result["growth"] = float(np.median([row["rss"] for row in rest[-10:]])) / settled["rss"] - 1
        result["largest_growth"] = max(row["rss"] for row in rest) / settled["rss"] - 1
        print(
            f"memory after {len(rows)} epochs (median of the last ten): {100 * result['growth']:+.1f} % of "
            f"that after {SETTLED}, at most {100 * result['largest_growth']:+.1f} % on the way; "
            f"files {min(r['files'] for r in rest)} to {max(r['files'] for r in rest)}, "
            f"threads {min(r['threads'] for r in rest)} to {max(r['threads'] for r in rest)}"
        )
    write_json(arguments.output, result)


def watch(folder: Path, epochs: int, rest: list) -> list:
    """Run et-train in `folder`; one row per epoch."""
    config = Path(__file__).resolve().parents[2] / "configs" / "demo.yaml"
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "elastictrainer.cli.train",
            "--config",
            str(config),
            "--epochs",
            str(epochs),
            "--interval",
            "1",
            "--output",
            str(folder / "run"),
            *rest,
        ],
        cwd=folder,
        stdout=subprocess.DEVNULL,
    )
    seen = psutil.Process(process.pid)
    metrics = folder / "run" / "metrics.jsonl"
    rows = []
    while process.poll() is None:
        time.sleep(0.2)
        done = len(metrics.read_text().splitlines()) if metrics.exists() else 0
        if done > len(rows):
            try:
                rows.append(look(seen, folder / "run", done))
            except psutil.NoSuchProcess:
                break
    if process.wait():
        raise SystemExit(f"et-train failed with status {process.returncode}")
    return rows


def size(path: Path) -> int:
    """Bytes; zero for what the run has removed in the meantime."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def look(process: psutil.Process, run: Path, epoch: int) -> dict:
    """Measure the memory, threads and files of the process."""
    patterns = {"logs": "*.jsonl", "events": "events/*/*", "checkpoints": "checkpoints/step-*/*"}
    sizes = {name: sum(size(p) for p in run.glob(pattern)) for name, pattern in patterns.items()}
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    return {
        "epoch": epoch,
        "rss": process.memory_info().rss,
        "files": process.num_fds(),
        "threads": process.num_threads(),
        "test_accuracy": last["test_accuracy"],
        **sizes,
    }


if __name__ == "__main__":
    main()
