"""Draw the accuracy of fleets over simulated time, and say when each is as good as the first at its best.

python studies/fleet.py full drop elastic --output fleet.png

Each folder has the rounds.csv of a rule; scripts/fleet.sh makes them.
"""

import argparse
import csv
from pathlib import Path
from typing import Dict, List

CAPTIONS = {
    "full": "FedAvg, waits for the slowest",
    "drop": "FedAvg, drops slow clients",
    "elastic": "elastic clients",
}


def read(folder: Path) -> List[Dict[str, str]]:
    """Return the rows of rounds.csv in a fleet's folder, with the rule."""
    with open(folder / "rounds.csv", newline="") as stream:
        return [{"rule": folder.name, **row} for row in csv.DictReader(stream)]


def draw(asked: argparse.Namespace) -> None:
    """Draw the rounds of each folder, write them as a table, and print when each is as good as the first."""
    from matplotlib.figure import Figure

    from elastictrainer.runs.files import write_csv

    figure = Figure((7, 4), layout="constrained")
    axes = figure.subplots()
    rows = [row for folder in asked.folders for row in read(Path(folder))]
    goal = None
    for rule in dict.fromkeys(row["rule"] for row in rows):
        seconds = [float(row["seconds"]) for row in rows if row["rule"] == rule]
        accuracy = [100 * float(row["accuracy"]) for row in rows if row["rule"] == rule]
        goal = max(accuracy) if goal is None else goal
        axes.plot(seconds, accuracy, marker="o", markersize=3, label=CAPTIONS.get(rule, rule))
        when = next((s for s, a in zip(seconds, accuracy) if a >= goal), None)
        reached = "never" if when is None else f"after {when:.1f} s"
        print(f"{rule}: best {max(accuracy):.1f} % in {seconds[-1]:.1f} s, {goal:.1f} % {reached}")
    axes.axhline(goal, color="grey", linewidth=0.8, linestyle=":")
    axes.set_xlabel("simulated time (s)")
    axes.set_ylabel("test accuracy (%)")
    axes.legend(frameon=False)
    figure.savefig(asked.output, dpi=120)
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = ([row.get(name, "") for name in names] for row in rows)
    write_csv(Path(asked.output).with_suffix(".csv"), names, table)


def main() -> None:
    """Parse the command line, and do what it asks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--output", default="fleet.png")
    draw(parser.parse_args())


if __name__ == "__main__":
    main()
