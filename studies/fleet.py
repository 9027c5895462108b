"""Say how good fleets become over simulated time, and when each is as good as the first at its best.

python studies/fleet.py full drop elastic --output fleet.csv

Each folder has the rounds.csv of a rule; scripts/fleet.sh makes them.
"""

import argparse
import csv
from pathlib import Path

from elastictrainer.runs.files import write_csv


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--output", default="fleet.csv")
    asked, rows, goal = parser.parse_args(), [], None
    for folder in asked.folders:
        with open(folder / "rounds.csv", newline="") as stream:
            own = [{"rule": folder.name, **row} for row in csv.DictReader(stream)]
        seconds = [float(row["seconds"]) for row in own]
        accuracy = [100 * float(row["accuracy"]) for row in own]
        goal = max(accuracy) if goal is None else goal
        when = next((s for s, a in zip(seconds, accuracy) if a >= goal), None)
        reached = "never" if when is None else f"after {when:.1f} s"
        print(f"{folder.name}: best {max(accuracy):.1f} % in {seconds[-1]:.1f} s, {goal:.1f} % {reached}")
        rows += own
    names = list(dict.fromkeys(name for row in rows for name in row))
    write_csv(asked.output, names, ([row.get(name, "") for name in names] for row in rows))


if __name__ == "__main__":
    main()
