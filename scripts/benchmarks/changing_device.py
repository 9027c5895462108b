"""Does the ratio hold when another job starts half-way through a run?

    python scripts/benchmarks/changing_device.py --output changing_device.json

The embedded task trains with `et-train`. After half of the epochs one busy process per core starts beside it,
at the same priority, and stays until the end. Full steps in between tell what full training costs before and
after; "achieved" is the run's training time over what full training would have taken, hour by hour of it, and
is to be within 0.02 of rho.
"""

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from elastictrainer.runs import environment
from elastictrainer.runs.files import write_json


def busy() -> None:
    while True:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rho", type=float, default=0.6)
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--output", default="changing_device.json", help="JSON file to write")
    parser.add_argument("rest", nargs="*", help="further options of et-train, after --")
    options = parser.parse_args()
    config = Path(__file__).resolve().parents[2] / "configs" / "demo.yaml"
    others = [
        multiprocessing.get_context("spawn").Process(target=busy, daemon=True)
        for _ in range(os.cpu_count() or 1)
    ]
    with tempfile.TemporaryDirectory(prefix="changing-device-") as folder:
        run = Path(folder, "run")
        training = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "elastictrainer.cli.train",
                "--config",
                str(config),
                "--rho",
                str(options.rho),
                "--epochs",
                str(options.epochs),
                "--output",
                str(run),
                *options.rest,
            ],
            cwd=folder,
            stdout=subprocess.DEVNULL,
        )
        metrics = run / "metrics.jsonl"
        started = False
        while training.poll() is None:
            time.sleep(0.5)
            if (
                not started
                and metrics.exists()
                and len(metrics.read_text().splitlines()) >= options.epochs // 2
            ):
                started = True
                for other in others:
                    other.start()
        for other in others:
            if started:
                other.terminate()
        if training.returncode:
            raise SystemExit(f"et-train failed with status {training.returncode}")
        rows = [json.loads(line) for line in metrics.read_text().splitlines()]
        selections = [json.loads(line) for line in (run / "selections.jsonl").read_text().splitlines()]
        summary = json.loads((run / "summary.json").read_text())
    print(f"{'epoch':>6}{'load':>6}{'ms/step':>9}{'seconds':>9}  selections in it: predicted")
    for row in rows:
        chosen = [
            f"{s['predicted_ratio']:.3f}{' (corrected)' if s['corrected'] else ''}"
            for s in selections
            if s["epoch"] + 1 == row["epoch"]
        ]
        load = "yes" if row["epoch"] > options.epochs // 2 else ""
        print(
            f"{row['epoch']:>6}{load:>6}{row['step_ms_median']:>9.1f}{row['train_seconds']:>9.1f}  "
            + ", ".join(chosen)
        )
    selecting_s = sum(summary[k] for k in ("importance_seconds", "selection_seconds", "trace_seconds"))
    print(
        f"requested {options.rho}, achieved {summary['rho_achieved']:.3f}; "
        f"corrections {summary['corrections']}, "
        f"selecting {selecting_s / summary['train_seconds']:.1%} of the time"
    )
    write_json(
        options.output,
        {"summary": summary, "epochs": rows, "options": vars(options), **environment.describe()},
    )


if __name__ == "__main__":
    main()
