"""The numbers of a figure's runs next to the paper's (configs/paper_numbers.yaml).

python scripts/figure_numbers.py FIGURE RUN... [--output FILE]
"""

import argparse
import sys
from pathlib import Path
from typing import Any, Dict, Iterable, List, Optional

import numpy as np
import yaml

from elastictrainer import UsageError
from elastictrainer.runs.files import write_json
from elastictrainer.runs.run_folder import RunFolder, find_runs

PAPER = Path(__file__).resolve().parents[1] / "configs" / "paper_numbers.yaml"
EPOCHS = 12  # of every run of the paper
UNITS = {"accuracy": "%", "hours": "h", "tflops": "TFLOPs", "joules": "J", "peak_gb": "GB"}
_SETTING = ("dataset", "model", "scheme", "rho", "activation_cache", "epochs", "memory")  # not the seed


def report(figure: str, paths: List[str], output: Optional[str] = None) -> None:
    """Print the numbers of the runs in `paths`, means over seeds, and write them as JSON to `output`."""
    runs, paper = find_runs(paths), yaml.safe_load(PAPER.read_text(encoding="utf-8"))
    entry = paper.get(figure, {})
    groups = replicates(runs)
    rows = [_row(members, _published(paper, figure, members[0].config())) for members in groups]
    for row in rows:
        same = [r for r in rows if all(r[k] == row[k] for k in ("dataset", "model", "device"))]
        full = next((r for r in same if r["scheme"] == "full"), None)
        row["ratio"] = row["seconds"] / full["seconds"] if full else None
        for device, numbers in row["paper"].items():
            full_there = full["paper"].get(device, {}) if full else {}
            if "hours" in numbers and "hours" in full_there:
                numbers["ratio"] = numbers["hours"] / full_there["hours"]
    _print(rows)
    if "numbers_of" in entry and any(row["paper"] for row in rows):
        print(f"The paper's numbers are those of {entry['numbers_of']}, for the same runs.")
    if "says" in entry:
        print(f"paper: {entry['says']}")
    more = {"speedups": _speedups(groups, entry["speedups"])} if figure == "table2" else {}
    if output:
        write_json(output, {"figure": figure, "rows": rows, **more})


def replicates(runs: Iterable[RunFolder]) -> List[List[RunFolder]]:
    """Group the runs that differ in their seed only."""
    groups: Dict[str, List[RunFolder]] = {}
    for run in runs:
        config, about = run.config(), run.environment()
        groups.setdefault(str([config.get(k) for k in _SETTING] + [_device(about)]), []).append(run)
    return list(groups.values())


def _device(about: Dict[str, Any]) -> str:
    """Name the device that an environment.json describes."""
    return str(about.get("device") or about.get("processor") or "")


def _selects(config: Dict[str, Any]) -> bool:
    return str(config["scheme"]).startswith("elastic")


def _published(paper: Dict[str, Any], figure: str, config: Dict[str, Any]) -> Dict[str, Dict[str, float]]:
    """Return the paper's numbers for a run, {device: {quantity: number}}; empty where it has none."""
    entry = paper.get(figure, {})
    devices = paper[entry["numbers_of"]]["devices"] if "numbers_of" in entry else entry.get("devices", {})
    if config["activation_cache"] != "off" or config["epochs"] != EPOCHS or config.get("memory"):
        return {}  # the paper has nothing like it

    def setting(row: Dict[str, Any]) -> List[Any]:
        return [row["dataset"], row["model"], row["scheme"], row.get("rho") if _selects(row) else None]

    return {
        device: {key: row[key] for key in UNITS if key in row}
        for device, rows in devices.items()
        for row in rows
        if setting(row) == setting(config)
    }


def _row(members: List[RunFolder], paper: Dict[str, Dict[str, float]]) -> Dict[str, Any]:
    """Return the means over `members`, with the paper's numbers by device."""
    config, summaries = members[0].config(), [run.summary() for run in members]

    def mean(key: str, factor: float = 1.0) -> Optional[float]:
        values = [summary.get(key) for summary in summaries]
        return None if None in values else factor * float(np.mean(values))

    label = f"{config['scheme']}, rho {config['rho']:g}" if _selects(config) else config["scheme"]
    label += "" if config["activation_cache"] == "off" else ", cached"
    label += f", {config['memory']}" if config.get("memory") else ""
    accuracies = [100 * summary["accuracy"] for summary in summaries]
    return {
        **{key: config[key] for key in ("model", "scheme", "activation_cache")},
        "dataset": Path(config["dataset"]).name,
        "label": label,
        "device": _device(members[0].environment()),
        "runs": len(members),
        "accuracy": float(np.mean(accuracies)),
        "accuracy_deviation": float(np.std(accuracies, ddof=1)) if len(members) > 1 else None,
        "seconds": mean("train_seconds"),
        "validation_seconds": mean("validation_seconds"),
        "tflops": mean("flops_total", 1e-12),
        "joules": mean("energy_joules"),
        "peak_gb": mean("peak_rss_bytes", 1e-9),
        "paper": paper,
    }


def _print(rows: List[Dict[str, Any]]) -> None:
    """Print ours, below it the paper's of the same setting and its criteria: 5 points, 10 % of time."""
    columns = (("ratio", ".3f", 7), ("TFLOPs", ".3g", 8), ("joules", ".0f", 8), ("peak GB", ".2f", 9))
    names = "".join(f"{name:>{width}}" for name, _, width in columns)
    print(f"{'data, model, scheme':<58}{'accuracy':>15}{'seconds':>9}{names}")
    for row in rows:
        name = f"{row['dataset']}, {row['model']}, {row['label']}"
        name += f" ({row['runs']} runs)" if row["runs"] > 1 else ""
        deviation = row["accuracy_deviation"]
        accuracy = f"{row['accuracy']:.1f}" + ("" if deviation is None else f" ± {deviation:.1f}") + " %"
        cells = []
        for column, form, width in columns:
            value = row[column.lower().replace(" ", "_")]
            cells.append(f"{'-' if value is None else format(value, form):>{width}}")
        print(f"{name:<58}{accuracy:>15}{row['seconds']:>9.0f}" + "".join(cells))
        for device, numbers in row["paper"].items():
            print(f"  paper, {device}: {_compared(row, numbers)}")
        if not row["paper"]:
            print("  paper: no number for this run")
    print("ratio: training time over that of full training on the same device; validation is in no time.")


def _compared(row: Dict[str, Any], numbers: Dict[str, float]) -> str:
    said = [f"{numbers[key]:g} {unit}" for key, unit in UNITS.items() if key in numbers]
    if "accuracy" in numbers:
        near = abs(row["accuracy"] - numbers["accuracy"]) <= 5
        said.append(f"accuracy {'within' if near else 'not within'} 5 points")
    if "ratio" in numbers:
        near = abs(row["ratio"] / numbers["ratio"] - 1) <= 0.1
        said.append(f"ratio {numbers['ratio']:.3f}, {'within' if near else 'not within'} 10 %")
    return ", ".join(said)


def _speedups(groups: List[List[RunFolder]], paper: Dict[str, Dict[int, float]]) -> List[Dict[str, Any]]:
    """Return how much sooner than the best baseline elastic training reaches a target, means over seeds.

    The paper's form is compared with baselines in that form, training with the activation cache with both.
    """
    result = []
    form = "{:<24}{:<6}{:>8}{:>11}{:>17}{:>10}   {}"
    print(form.format("data", "cache", "target", "elastic s", "best baseline s", "speed-up", "paper"))
    configs = [members[0].config() for members in groups]
    for dataset, cache in dict.fromkeys((c["dataset"], c["activation_cache"]) for c in configs):
        here = [(c, members) for c, members in zip(configs, groups) if c["dataset"] == dataset]
        ours = [run for c, runs in here if _selects(c) and c["activation_cache"] == cache for run in runs]
        others = [runs for c, runs in here if not _selects(c) and c["activation_cache"] in ("off", cache)]
        if not ours or not others:
            continue
        best = 100 * min(run.summary()["accuracy"] for run in ours)
        for target in list(paper.get(dataset, {})) or [round(best * share) for share in (0.85, 0.92, 0.98)]:
            elastic_s = _seconds_to(ours, target)
            reached = [s for s in (_seconds_to(runs, target) for runs in others) if s is not None]
            row = {
                "dataset": Path(dataset).name,
                "activation_cache": cache,
                "target": target,
                "elastic_s": elastic_s,
                "baseline_s": min(reached, default=None),
                "speedup": min(reached) / elastic_s if reached and elastic_s else None,
                "paper": paper.get(dataset, {}).get(target) if cache == "off" else None,
            }
            result.append(row)
            times = ["never" if row[k] is None else f"{row[k]:.0f}" for k in ("elastic_s", "baseline_s")]
            speedup = "-" if row["speedup"] is None else f"{row['speedup']:.2f}"
            print(form.format(row["dataset"], cache, f"{target} %", *times, speedup, row["paper"] or "-"))
    return result


def _seconds_to(runs: List[RunFolder], target: float) -> Optional[float]:
    """Return the mean training seconds until an epoch has `target` %; None where a run never had it.

    Of test images; of a run that validates, which tests once at its end, of validation images.
    """

    def reached(epoch: Dict[str, Any]) -> bool:
        accuracies = (epoch.get("test_accuracy"), epoch.get("val_accuracy"))
        return 100 * next((a for a in accuracies if a is not None), 0) >= target

    found = [next((e["train_seconds_total"] for e in run.metrics() if reached(e)), None) for run in runs]
    return None if None in found else sum(found) / len(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figure")
    parser.add_argument("runs", nargs="+", metavar="RUN")
    parser.add_argument("--output", metavar="FILE")
    arguments = parser.parse_args()
    try:
        report(arguments.figure, arguments.runs, arguments.output)
    except UsageError as error:
        print(f"figure_numbers.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
