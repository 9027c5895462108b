"""What the figure scripts ask about profiles and runs.

python scripts/figure_data.py affordable PROFILE RHO    exit status 1 where the device cannot have the ratio
python scripts/figure_data.py hours PROFILE OPTION...   how long an et-train with these options would take
python scripts/figure_data.py table FIGURE RUN... --output FILE   the numbers of a figure and the paper's
"""

import argparse
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import yaml

from elastictrainer import TensorTimings, UsageError
from elastictrainer.experiment.options import parse
from elastictrainer.experiment.settings import TrainSettings
from elastictrainer.plotting.replicates import replicates
from elastictrainer.runs.files import write_json
from elastictrainer.runs.run_folder import RunFolder, find_runs

PAPER = Path(__file__).resolve().parents[1] / "configs" / "paper_numbers.yaml"
TRAINING_IMAGES = {"caltech_birds2011": 5994, "oxford_iiit_pet": 3680, "stanford_dogs": 12000, "demo": 1800}
SAME_FIGURE = {
    "figure15ad": "figure15",
    "figure16": "figure15",
    "figure18": "figure17",
    "figure20": "figure17",
    "table2": "figure15",
}


def affordable(profile: str, rho: float) -> int:
    rho_min = TensorTimings.load(profile).rho_min
    if rho < rho_min:
        print(f"left out: rho {rho:g} is below what this device can have ({rho_min:.3f})")
    return int(rho < rho_min)


def hours(profile: str, options: List[str]) -> int:
    if not Path(profile).exists():
        print("  hours: not known before the profile is made")
        return 0
    asked, _ = parse(TrainSettings, options, argparse.ArgumentParser(allow_abbrev=False))
    images = TRAINING_IMAGES.get(asked.dataset)
    if images is None:
        images = sum(path.is_file() for path in Path(asked.dataset, "train").glob("*/*"))
    share = asked.rho if asked.scheme.startswith("elastic") else 1.0
    bound = "" if asked.scheme.startswith("elastic") or asked.scheme in ("full", "prunetrain") else "at most "
    seconds = TensorTimings.load(profile).full_ms / 1e3 * (images // asked.batch_size) * asked.epochs * share
    print(f"  hours: {bound}{seconds / 3600:.2f} of training, validation not counted")
    return 0


def table(figure: str, paths: List[str], output: Optional[str]) -> int:
    runs = find_runs(paths)
    paper = yaml.safe_load(PAPER.read_text(encoding="utf-8"))
    numbers = paper.get(SAME_FIGURE.get(figure, figure), {}).get("rows", [])
    rows = [_row(run, name, numbers) for name, run in _named(runs)]
    for row in rows:
        full = next((r for r in rows if r["scheme"] == "full" and _place(r) == _place(row)), None)
        row["ratio"] = row["seconds"] / full["seconds"] if full else None
        if full and row.get("paper_hours") and full.get("paper_hours"):
            row["paper_ratio"] = row["paper_hours"] / full["paper_hours"]
    _print(rows)
    result: Dict[str, Any] = {"figure": figure, "rows": rows}
    if figure == "table2":
        result["speedups"] = _speedups(runs, paper["table2"]["speedups"])
    if output:
        write_json(output, result)
    return 0


def _place(row: Dict[str, Any]) -> tuple:
    return row["dataset"], row["model"]


def _named(runs: List[RunFolder]) -> List[Tuple[str, RunFolder]]:
    """Each run with what tells it from the others of its data set and model."""
    places: Dict[tuple, List[RunFolder]] = {}
    for run in runs:
        places.setdefault(_place(run.config()), []).append(run)
    return [
        (name, member)
        for members in places.values()
        for name, group in replicates(members).items()
        for member in group
    ]


def _row(run: RunFolder, name: str, numbers: List[Dict[str, Any]]) -> Dict[str, Any]:
    chosen, summary = run.config(), run.summary()
    rho = chosen["rho"] if chosen["scheme"].startswith("elastic") else None
    found = next(
        (
            n
            for n in numbers
            if chosen["reuse"] == "off"  # what the paper has
            and (n["dataset"], n["model"], n["scheme"], n.get("rho"))
            == (chosen["dataset"], chosen["model"], chosen["scheme"], rho)
        ),
        {},
    )
    flops = summary.get("flops_total")
    return {
        "dataset": Path(chosen["dataset"]).name,
        "model": chosen["model"],
        "scheme": chosen["scheme"],
        "label": name,
        "reuse": chosen["reuse"],
        "accuracy": 100 * summary["accuracy_best"],
        "seconds": summary["train_seconds"],
        "validation_seconds": summary["validation_seconds"],
        "tflops": flops and flops / 1e12,
        "joules": summary.get("energy_joules"),
        "peak_gb": summary["peak_rss_bytes"] / 1e9,
        **{f"paper_{key}": found[key] for key in ("accuracy", "hours", "tflops", "joules") if key in found},
    }


def _print(rows: List[Dict[str, Any]]) -> None:
    """Ours, the paper's of the same setting, and its criteria: 5 points of accuracy, 10 % of time."""
    print(
        f"{'data, model, scheme':<52}{'accuracy':>9}{'seconds':>9}{'ratio':>7}{'TFLOPs':>8}{'joules':>8}"
        f"{'GB':>6}   paper"
    )
    for row in rows:
        name = f"{row['dataset']}, {row['model']}, {row['label']}"
        line = f"{name:<52}{row['accuracy']:>7.1f} %{row['seconds']:>9.0f}" + "".join(
            f"{'-' if row[key] is None else format(row[key], form):>{width}}"
            for key, form, width in (
                ("ratio", ".3f", 7),
                ("tflops", ".3g", 8),
                ("joules", ".0f", 8),
                ("peak_gb", ".2f", 6),
            )
        )
        said = [
            f"{row['paper_' + key]:g} {unit}"
            for key, unit in (("accuracy", "%"), ("hours", "h"), ("tflops", "TFLOPs"), ("joules", "J"))
            if "paper_" + key in row
        ]
        if "paper_accuracy" in row:
            said.append(
                "accuracy "
                + ("within" if abs(row["accuracy"] - row["paper_accuracy"]) <= 5 else "not within")
                + " 5 points"
            )
        if "paper_ratio" in row:
            near = abs(row["ratio"] / row["paper_ratio"] - 1) <= 0.1
            said.append(f"its ratio {row['paper_ratio']:.3f}, {'within' if near else 'not within'} 10 %")
        print(line + "   " + (", ".join(said) or "-"))
    print(
        "ratio: training time over that of full training here; validation is in no time. Paper's hours: "
        "another device."
    )


def _speedups(runs: List[RunFolder], paper: Dict[str, Dict[int, float]]) -> List[Dict[str, Any]]:
    """How much sooner than the best baseline elastic training reaches a target accuracy, mean over seeds.

    The paper's form is held against baselines in the paper's form, elastic training with reuse against both
    forms of every baseline.
    """
    result = []
    print(
        f"{'data':<24}{'reuse':<6}{'target':>8}{'elastic s':>11}{'best baseline s':>17}{'speed-up':>10}"
        "   paper"
    )
    for dataset, reuse in dict.fromkeys((run.config()["dataset"], run.config()["reuse"]) for run in runs):
        here = [run for run in runs if run.config()["dataset"] == dataset]
        ours = [run for run in here if (run.config()["scheme"], run.config()["reuse"]) == ("elastic", reuse)]
        others = [
            run
            for run in here
            if not run.config()["scheme"].startswith("elastic") and run.config()["reuse"] in ("off", reuse)
        ]
        if not ours or not others:
            continue
        published = paper.get(dataset, {}) if reuse == "off" else {}
        best = 100 * min(run.summary()["accuracy_best"] for run in ours)
        baselines = list(replicates(others).values())
        targets = list(paper.get(dataset, {})) or [round(best * share) for share in (0.85, 0.92, 0.98)]
        for target in targets:
            elastic_s = _seconds_to(ours, target)
            reached = [s for s in (_seconds_to(members, target) for members in baselines) if s is not None]
            speedup = min(reached) / elastic_s if reached and elastic_s else None
            row = {
                "dataset": Path(dataset).name,
                "reuse": reuse,
                "target": target,
                "elastic_s": elastic_s,
                "baseline_s": min(reached, default=None),
                "speedup": speedup,
                "paper": published.get(target),
            }
            result.append(row)
            print(
                f"{row['dataset']:<24}{reuse:<6}{target:>6} %"
                + "".join(
                    f"{'never' if row[k] is None else format(row[k], '.0f'):>{w}}"
                    for k, w in (("elastic_s", 11), ("baseline_s", 17))
                )
                + f"{'-' if speedup is None else format(speedup, '.2f'):>10}   {row['paper'] or '-'}"
            )
    return result


def _seconds_to(runs: List[RunFolder], target: float) -> Optional[float]:
    """Mean training seconds until the test accuracy of an epoch is `target` %; None where a run has none."""
    found = [
        next((r["train_seconds_total"] for r in run.metrics() if 100 * r["test_accuracy"] >= target), None)
        for run in runs
    ]
    return None if None in found else sum(found) / len(found)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("affordable", "hours", "table"))
    parser.add_argument("subject", help="a profile, or a figure's name")
    arguments, rest = parser.parse_known_args()
    try:
        if arguments.what == "affordable":
            return affordable(arguments.subject, float(rest[0]))
        if arguments.what == "hours":
            return hours(arguments.subject, rest)
        output = rest[rest.index("--output") + 1] if "--output" in rest else None
        return table(arguments.subject, rest[: rest.index("--output")] if output else rest, output)
    except UsageError as error:
        print(f"figure_data.py: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
