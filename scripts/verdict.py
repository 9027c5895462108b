"""The verdict of the demo, from finished runs; medians where there are several.

python scripts/verdict.py --full RUN... --short RUN... --below RUN... --elastic RUN...
"""

import argparse
from statistics import median
from typing import Dict, List

from elastictrainer.errors import UsageError
from elastictrainer.runs.run_folder import RunFolder

# Full training, full training of fewer epochs, and in about their time late layers and chosen tensors: a run
# for each seed, in the same order.
WAYS = ("full", "short", "below", "elastic")


def verdict(runs: Dict[str, List[RunFolder]]) -> str:
    """Return the time and accuracy of both ways that train some tensors, given the runs of all WAYS."""
    summaries = {way: [run.summary() for run in own] for way, own in runs.items()}
    accuracy = {way: median(100 * s["accuracy"] for s in own) for way, own in summaries.items()}
    full_epochs, epochs = (runs[way][0].config()["epochs"] for way in ("full", "short"))
    records = (record for run in runs["elastic"] for record in run.metrics())
    solved = [100 * record["test_accuracy"] for record in records if record["epoch"] == 0]
    sentences = [f"The solved head alone has {median(solved):.2f} %."] if solved else []
    for way, words in (("below", "Late layers (freeze-below)"), ("elastic", "Chosen tensors (elastic)")):
        pairs = zip(summaries[way], summaries["full"])
        share = median(one["train_seconds"] / full["train_seconds"] for one, full in pairs)
        full, short = (_compared(accuracy[way], accuracy[other]) for other in ("full", "short"))
        sentences.append(
            f"{words} took {share:.2f} of full training's time and end at {accuracy[way]:.2f} %: {full} full "
            f"training of {full_epochs} epochs, {short} that of {epochs}."
        )
    seeds = len(runs["elastic"])
    return " ".join([*sentences, *([f"Medians of {seeds} seeds."] if seeds > 1 else [])])


def _compared(one: float, other: float) -> str:
    """One accuracy in per cent, as it stands to another."""
    if f"{one:.2f}" == f"{other:.2f}":
        return "level with"
    return f"{abs(one - other):.2f} points {'above' if one > other else 'below'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in WAYS:
        parser.add_argument(f"--{name}", nargs="+", required=True, metavar="RUN")
    arguments = vars(parser.parse_args())
    try:
        print(verdict({way: [RunFolder(path) for path in paths] for way, paths in arguments.items()}))
    except UsageError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
