"""One sentence on elastic training and its rivals, from finished runs; medians where there are several.

python scripts/verdict.py --full RUN... --short RUN... --below RUN... --elastic RUN...
"""

import argparse
from statistics import median
from typing import List

from elastictrainer.errors import UsageError
from elastictrainer.runs.run_folder import RunFolder


def sentence(
    full: List[RunFolder], short: List[RunFolder], below: List[RunFolder], elastic: List[RunFolder]
) -> str:
    """The time and accuracy of elastic training.

    Args:
        full: full training, a run for each seed.
        short: full training of fewer epochs.
        below: all tensors from some layer on, in the time of elastic training.
        elastic: with the same seeds, in the same order.
    """
    accuracy = {
        name: median(100 * run.summary()["accuracy"] for run in runs)
        for name, runs in (("full", full), ("short", short), ("below", below), ("elastic", elastic))
    }
    share = median(e.summary()["train_seconds"] / f.summary()["train_seconds"] for e, f in zip(elastic, full))
    epochs = short[0].config()["epochs"]
    counted = f", medians of {len(elastic)} seeds" if len(elastic) > 1 else ""
    start = [record for run in elastic for record in run.metrics() if record["epoch"] == 0]
    solved = [100 * record["test_accuracy"] for record in start]
    head = f"The solved head alone has {median(solved):.2f} %. " if solved else ""
    return (
        f"{head}Elastic training took {share:.2f} of full training's time and ends at "
        f"{accuracy['elastic']:.2f} %: "
        f"{_beside(accuracy['elastic'], accuracy['full'])} full training, "
        f"{_beside(accuracy['elastic'], accuracy['short'])} full training of {epochs} "
        f"epoch{'' if epochs == 1 else 's'} instead of {full[0].config()['epochs']}, "
        f"{_beside(accuracy['elastic'], accuracy['below'])} freeze-below{counted}."
    )


def _beside(one: float, other: float) -> str:
    """One accuracy in per cent, as it stands to another."""
    if f"{one:.2f}" == f"{other:.2f}":
        return "level with"
    return f"{abs(one - other):.2f} points {'above' if one > other else 'below'}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("full", "short", "below", "elastic"):
        parser.add_argument(f"--{name}", nargs="+", required=True, metavar="RUN")
    arguments = vars(parser.parse_args())
    try:
        print(sentence(**{name: [RunFolder(path) for path in paths] for name, paths in arguments.items()}))
    except UsageError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
