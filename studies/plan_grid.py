"""Compare the rule that divides a run's time (selection/plan.py) with fixed intervals and epochs.

    python studies/plan_grid.py plan-grid.csv --group mobilenetv2-cub100 -- \
        --model mobilenetv2 --weights path/to/mobilenet_v2.h5 --dataset path/to/cub100
    python studies/plan_grid.py plan-grid.csv

Each run trains a share of the time of 12 full epochs. "rule" lets the program decide; a row such as 2x6 has
two intervals, whose selections plan six epochs each. With options for et-train, rows that the file lacks are
added. Then the table is printed: accuracy at the end, and what the rule has below the best of its group.
"""

import argparse
import csv
import sys
from collections import defaultdict
from pathlib import Path

from elastictrainer.runs.files import write_csv
from elastictrainer.runs.run_folder import RunFolder

_COLUMNS = ["group", "rho", "plan", "seed", "accuracy", "epochs"]
# Intervals and epochs of each, by rho: more do not fit into little time.
_GRID = {
    0.05: ["1x4"],
    0.15: ["1x4", "1x8", "1x16", "2x4", "2x8"],
    0.5: ["1x6", "1x12", "2x6", "2x12", "4x6"],
}


def train(plan_name, options, folder):
    """Train with a fixed plan in place of the rule; "rule": as the program decides."""
    from elastictrainer.cli import train as command
    from elastictrainer.selection.plan import Plan
    from elastictrainer.training import prepared

    rule = prepared.make_plan

    def fixed(profile, steps_per_epoch, *others, **more):
        intervals, passes = map(int, plan_name.split("x"))
        return Plan([k / intervals for k in range(intervals)], float(passes), steps_per_epoch)

    prepared.make_plan = rule if plan_name == "rule" else fixed
    try:
        return command.main([*options, "--output", str(folder), "--overwrite", "--validation-freq", "1000"])
    finally:
        prepared.make_plan = rule


def rows_of(path):
    """Return the rows of a CSV file; none where there is no file."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def add(path, group, rhos, seeds, options):
    """Train what the file lacks, and add a row for each run."""
    for seed in seeds:
        for rho in rhos:
            for plan_name in ["rule", *_GRID[rho]]:
                key = {"group": group, "rho": str(rho), "plan": plan_name, "seed": str(seed)}
                if any(all(row[name] == value for name, value in key.items()) for row in rows_of(path)):
                    continue
                folder = Path("benchmark-output", "plan-grid", "-".join(key.values()))
                given = [*options, "--rho", str(rho), "--seed", str(seed)]
                if train(plan_name, given, folder):
                    continue  # it said why
                summary = RunFolder(folder).summary()
                found = {**key, "accuracy": f"{100 * summary['accuracy']:.2f}", "epochs": summary["epochs"]}
                rows = [*rows_of(path), found]
                write_csv(path, _COLUMNS, [[row[name] for name in _COLUMNS] for row in rows])


def show(path):
    """Print the mean accuracy of each plan, and what the rule loses against the best of its group."""
    found = defaultdict(lambda: defaultdict(list))
    for row in rows_of(path):
        found[row["group"], row["rho"]][row["plan"]].append(float(row["accuracy"]))
    for (group, rho), plans in sorted(found.items()):
        means = {plan: sum(values) / len(values) for plan, values in plans.items()}
        listed = ", ".join(f"{plan} {mean:.1f}" for plan, mean in means.items())
        others = [mean for plan, mean in means.items() if plan != "rule"]
        loss = f"; the rule is {max(others) - means['rule']:+.1f} below" if others and "rule" in means else ""
        print(f"{group} at {rho}: {listed}{loss}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("csv", type=Path)
    parser.add_argument("--group", help="name of network and images; given with options for et-train")
    parser.add_argument("--rhos", type=float, nargs="+", default=[*_GRID], choices=[*_GRID])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    given, options = parser.parse_known_args()
    options = [option for option in options if option != "--"]
    if options:
        if not given.group:
            sys.exit("plan_grid.py: --group NAME is missing")
        add(given.csv, given.group, given.rhos, given.seeds, options)
    show(given.csv)


if __name__ == "__main__":
    main()
