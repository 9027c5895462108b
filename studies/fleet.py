"""Say how good fleets become over simulated time, and when each is as good as the first at its best.

python studies/fleet.py full drop elastic --output fleet.csv

Each folder has the rounds.csv of a rule; scripts/fleet.sh makes them.
"""

import argparse
import csv
from pathlib import Path
from typing import Dict, List

from elastictrainer.runs.files import write_csv


def read(folder: Path) -> List[Dict[str, str]]:
    """Return the rows of rounds.csv in a fleet's folder, with the rule."""
    with open(folder / "rounds.csv", newline="") as stream:
        return [{"rule": folder.name, **row} for row in csv.DictReader(stream)]


def compare(asked: argparse.Namespace) -> None:
    """Write the rounds of all folders as a table, and print when each is as good as the first."""
    rows = [row for folder in asked.folders for row in read(Path(folder))]
    goal = None
    for rule in dict.fromkeys(row["rule"] for row in rows):
        seconds = [float(row["seconds"]) for row in rows if row["rule"] == rule]
        accuracy = [100 * float(row["accuracy"]) for row in rows if row["rule"] == rule]
        goal = max(accuracy) if goal is None else goal
        when = next((s for s, a in zip(seconds, accuracy) if a >= goal), None)
        reached = "never" if when is None else f"after {when:.1f} s"
        print(f"{rule}: best {max(accuracy):.1f} % in {seconds[-1]:.1f} s, {goal:.1f} % {reached}")
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = ([row.get(name, "") for name in names] for row in rows)
    write_csv(asked.output, names, table)


def main() -> None:
    """Parse the command line, and do what it asks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--output", default="fleet.csv")
    compare(parser.parse_args())


if __name__ == "__main__":
    main()
