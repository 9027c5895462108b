"""The numbers of a figure's runs and the paper's.

python scripts/figure_data.py FIGURE RUN... [--output FILE]
"""

import argparse
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

import paper_numbers
from elastictrainer import UsageError
from elastictrainer.plotting.replicates import replicates, spread, what_counts
from elastictrainer.runs.files import write_json
from elastictrainer.runs.run_folder import RunFolder, find_runs

UNITS = {"accuracy": "%", "hours": "h", "tflops": "TFLOPs", "joules": "J", "peak_gb": "GB"}


def table(figure: str, paths: List[str], output: Optional[str]) -> None:
    """Print the numbers of the runs in `paths`, and write them as JSON."""
    runs = find_runs(paths)
    rows = [_row(members, name, figure) for name, members in _named(runs)]
    for row in rows:
        same = [r for r in rows if _place(r) == _place(row) and r["device"] == row["device"]]
        full = next((r for r in same if r["scheme"] == "full"), None)
        row["ratio"] = row["seconds"] / full["seconds"] if full else None
        for device, numbers in row["paper"].items():
            full_there = full["paper"].get(device, {}) if full else {}
            if "hours" in numbers and "hours" in full_there:
                numbers["ratio"] = numbers["hours"] / full_there["hours"]
    _print(rows)
    entry = paper_numbers.of_figure(figure)
    if "numbers_of" in entry and any(row["paper"] for row in rows):
        print(f"The paper's numbers are those of {entry['numbers_of']}, for the same runs.")
    if "says" in entry:
        print(f"paper: {entry['says']}")
    result: Dict[str, Any] = {"figure": figure, "rows": rows}
    if figure == "table2":
        result["speedups"] = _speedups(runs, entry["speedups"])
    if output:
        write_json(output, result)


def _place(row: Dict[str, Any]) -> tuple:
    return row["dataset"], row["model"]


def _named(runs: List[RunFolder]) -> List[Tuple[str, List[RunFolder]]]:
    """Runs that differ in their seed only, and what tells them from others of their data set and model."""
    places: Dict[tuple, List[RunFolder]] = {}
    for run in runs:
        places.setdefault(_place(run.config()), []).append(run)
    return [(name, group) for members in places.values() for name, group in replicates(members).items()]


def _row(members: List[RunFolder], name: str, figure: str) -> Dict[str, Any]:
    """Means over `members`, and the paper's numbers for such a run by device."""
    chosen, summaries = members[0].config(), [run.summary() for run in members]

    def mean(key: str, factor: float = 1.0) -> Optional[float]:
        values = [summary.get(key) for summary in summaries]
        return None if None in values else factor * float(np.mean(values))

    deviation = spread([100 * summary["accuracy"] for summary in summaries])
    return {
        "dataset": Path(chosen["dataset"]).name,
        "model": chosen["model"],
        "scheme": chosen["scheme"],
        "label": name,
        "activation_cache": chosen["activation_cache"],
        "device": what_counts(members[0])["device"],
        "runs": len(members),
        "accuracy": mean("accuracy", 100),
        "accuracy_deviation": None if deviation is None else float(deviation),
        "seconds": mean("train_seconds"),
        "validation_seconds": mean("validation_seconds"),
        "tflops": mean("flops_total", 1e-12),
        "joules": mean("energy_joules"),
        "peak_gb": mean("peak_rss_bytes", 1e-9),
        "paper": {
            device: {key: numbers[key] for key in UNITS if key in numbers}
            for device, numbers in paper_numbers.of_run(figure, chosen).items()
        },
    }


def _print(rows: List[Dict[str, Any]]) -> None:
    """Ours, below it the paper's of the same setting and its criteria: 5 points of accuracy, 10 % of time."""
    print(
        f"{'data, model, scheme':<58}{'accuracy':>15}{'seconds':>9}{'ratio':>7}{'TFLOPs':>8}{'joules':>8}"
        f"{'GB':>6}"
    )
    for row in rows:
        name = f"{row['dataset']}, {row['model']}, {row['label']}"
        name += f" ({row['runs']} runs)" if row["runs"] > 1 else ""
        deviation = row["accuracy_deviation"]
        accuracy = f"{row['accuracy']:.1f}" + ("" if deviation is None else f" ± {deviation:.1f}") + " %"
        print(
            f"{name:<58}{accuracy:>15}{row['seconds']:>9.0f}"
            + "".join(
                f"{'-' if row[key] is None else format(row[key], form):>{width}}"
                for key, form, width in (
                    ("ratio", ".3f", 7),
                    ("tflops", ".3g", 8),
                    ("joules", ".0f", 8),
                    ("peak_gb", ".2f", 6),
                )
            )
        )
        for device, numbers in row["paper"].items():
            print(f"  paper, {device}: {_held_against(row, numbers)}")
        if not row["paper"]:
            print("  paper: no number for this run")
    print("ratio: training time over that of full training on the same device; validation is in no time.")


def _held_against(row: Dict[str, Any], numbers: Dict[str, float]) -> str:
    said = [f"{numbers[key]:g} {unit}" for key, unit in UNITS.items() if key in numbers]
    if "accuracy" in numbers:
        near = abs(row["accuracy"] - numbers["accuracy"]) <= 5
        said.append(f"accuracy {'within' if near else 'not within'} 5 points")
    if "ratio" in numbers:
        near = abs(row["ratio"] / numbers["ratio"] - 1) <= 0.1
        said.append(f"ratio {numbers['ratio']:.3f}, {'within' if near else 'not within'} 10 %")
    return ", ".join(said)


def _speedups(runs: List[RunFolder], paper: Dict[str, Dict[int, float]]) -> List[Dict[str, Any]]:
    """How much sooner than the best baseline elastic training reaches a target accuracy, mean over seeds.

    The paper's form is held against baselines in the paper's form, elastic training with cache against both
    forms of every baseline.
    """
    result = []
    print(
        f"{'data':<24}{'cache':<6}{'target':>8}{'elastic s':>11}{'best baseline s':>17}{'speed-up':>10}"
        "   paper"
    )
    for dataset, cache in dict.fromkeys(
        (run.config()["dataset"], run.config()["activation_cache"]) for run in runs
    ):
        here = [run for run in runs if run.config()["dataset"] == dataset]
        ours = [
            run
            for run in here
            if (run.config()["scheme"], run.config()["activation_cache"]) == ("elastic", cache)
        ]
        others = [
            run
            for run in here
            if not run.config()["scheme"].startswith("elastic")
            and run.config()["activation_cache"] in ("off", cache)
        ]
        if not ours or not others:
            continue
        published = paper.get(dataset, {}) if cache == "off" else {}
        best = 100 * min(run.summary()["accuracy"] for run in ours)
        baselines = list(replicates(others).values())
        targets = list(paper.get(dataset, {})) or [round(best * share) for share in (0.85, 0.92, 0.98)]
        for target in targets:
            elastic_s = _seconds_to(ours, target)
            reached = [s for s in (_seconds_to(members, target) for members in baselines) if s is not None]
            speedup = min(reached) / elastic_s if reached and elastic_s else None
            row = {
                "dataset": Path(dataset).name,
                "activation_cache": cache,
                "target": target,
                "elastic_s": elastic_s,
                "baseline_s": min(reached, default=None),
                "speedup": speedup,
                "paper": published.get(target),
            }
            result.append(row)
            print(
                f"{row['dataset']:<24}{cache:<6}{target:>6} %"
                + "".join(
                    f"{'never' if row[k] is None else format(row[k], '.0f'):>{w}}"
                    for k, w in (("elastic_s", 11), ("baseline_s", 17))
                )
                + f"{'-' if speedup is None else format(speedup, '.2f'):>10}   {row['paper'] or '-'}"
            )
    return result


def _seconds_to(runs: List[RunFolder], target: float) -> Optional[float]:
    """Mean training seconds until the accuracy of an epoch is `target` %; None where a run never had it.

    Of test images; of a run that validates, which tests once at its end, of validation images.
    """

    def reached(epoch: Dict[str, Any]) -> bool:
        accuracies = (epoch.get("test_accuracy"), epoch.get("val_accuracy"))
        return 100 * next((a for a in accuracies if a is not None), 0) >= target

    found = [
        next((epoch["train_seconds_total"] for epoch in run.metrics() if reached(epoch)), None)
        for run in runs
    ]
    return None if None in found else sum(found) / len(found)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("figure")
    parser.add_argument("runs", nargs="+", metavar="RUN")
    parser.add_argument("--output", metavar="FILE")
    arguments = parser.parse_args()
    try:
        table(arguments.figure, arguments.runs, arguments.output)
    except UsageError as error:
        print(f"figure_data.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
