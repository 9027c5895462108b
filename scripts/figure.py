"""Reproduce one figure or table of the paper: profile, train what is missing, draw, and print the numbers.

    bash scripts/figure.sh NAME

  QUICK=1      the same figure on the demo data, in minutes (configs/quick.yaml)
  EGO=1        elastic training only, without the baselines
  DRY_RUN=1    print the commands, and the sum of the hours that they take: on the paper's devices by its own
               numbers, and here once there is a profile
  SEEDS        "0 1 2": each run with each of these seeds; pictures and numbers are then means (0)
  FORMAT       of the pictures: png, pdf or svg (png)
  MODEL, DATASET, WEIGHTS, EPOCHS, RHO, RHOS   instead of the figure's own; one each, but for RHOS ("0.4 0.5")
  MEMORY       1.2GB: figure22 has one more run, within that memory
  OUTPUT       where runs and pictures go (figures-output); finished runs there are reused, interrupted ones
               resumed

If a run fails, the others go on and it is named at the end. Ctrl-C stops all; the same command continues.
"""

import os
import sys
from typing import Callable, Dict, Sequence, Tuple

from elastictrainer import UsageError
from figure_runs import Figure, values_of

BIRDS, PETS, DOGS = "caltech_birds2011", "oxford_iiit_pet", "stanford_dogs"
FORMATS = ("png", "pdf", "svg")
DATASET, MODEL = values_of("DATASET", BIRDS)[0], values_of("MODEL", "resnet50")[0]


def _figure17(figure: Figure) -> None:
    figure.by_rho(DATASET, MODEL, "0.35", "0.4", "0.5", "0.6", "0.7")
    figure.baselines(DATASET, MODEL, "full", "traditional-tl", "bn-bias", "prunetrain")
    for quantity in ("accuracy", "time", "flops"):
        figure.draw(f"figure17_{quantity}", "bars", "--y", quantity)


def _figure18(figure: Figure) -> None:
    figure.baselines(DATASET, MODEL, "full")
    figure.by_rho(DATASET, MODEL, "0.4", "0.5", "0.6", "0.7")
    figure.draw("figure18", "curves", "--x", "epochs", "--y", "flops")


def _figure19(figure: Figure) -> None:
    for model in values_of("MODEL", "resnet50", "vgg16", "mobilenetv2", "vit"):
        figure.baselines(DATASET, model, "full")
        figure.elastic(DATASET, model, os.environ.get("RHO") or "0.4")
    figure.draw("figure19_accuracy", "bars", "--y", "accuracy")
    figure.draw("figure19_time", "bars", "--y", "time")


def _figure20(figure: Figure) -> None:
    figure.paper_elastic(DATASET, MODEL, "0.5")
    if figure.affordable(DATASET, MODEL, "0.5"):
        for metric in ("elastic-weight-magnitude", "elastic-grad-magnitude"):
            figure.train(
                DATASET, MODEL, metric, "--scheme", metric, "--rho", "0.5", "--activation-cache", "off"
            )
    figure.draw("figure20", "curves")


def _figure21(figure: Figure) -> None:
    figure.paper_elastic(DATASET, MODEL, "0.5")
    figure.draw_each("figure21", "selection")


def _figure22(figure: Figure) -> None:
    memory = os.environ.get("MEMORY")
    if memory:
        figure.train(
            DATASET, MODEL, f"elastic-0.5-{memory}", "--scheme", "elastic", "--rho", "0.5", "--memory", memory
        )
    _full_and_elastic(figure, "memory")


def _full_and_elastic(figure: Figure, quantity: str) -> None:
    figure.baselines(DATASET, MODEL, "full")
    figure.elastic(DATASET, MODEL, "0.5")
    figure.draw(figure.name, "bars", "--y", quantity)


def _table2(figure: Figure) -> None:
    for dataset in values_of("DATASET", BIRDS, PETS, DOGS):
        figure.four_schemes(dataset, MODEL)


FIGURES: Dict[str, Tuple[str, Callable[[Figure], None]]] = {
    "figure15": (
        "Accuracy (a-c) and loss (d-f) over training time, four schemes on three data sets.",
        lambda figure: figure.curves_by_dataset(MODEL, BIRDS, PETS, DOGS),
    ),
    "figure15ad": (
        "Figure 15 (a) and (d): its first data set alone.",
        lambda figure: figure.curves_by_dataset(MODEL, BIRDS),
    ),
    "figure16": (
        "As Figure 15, on the two data sets that the paper trained on a Raspberry Pi.",
        lambda figure: figure.curves_by_dataset(MODEL, PETS, DOGS),
    ),
    "figure17": (
        "Accuracy against time (a, c) and FLOPs (b, d), by rho and for every baseline.",
        _figure17,
    ),
    "figure18": ("FLOPs of every epoch, by rho.", _figure18),
    "figure19": ("Accuracy and time of four models at rho 0.4, against full training.", _figure19),
    "figure20": ("Three metrics of importance, at the same time.", _figure20),
    "figure21": ("Which tensors each selection chose.", _figure21),
    "figure22": (
        "Peak memory, elastic against full training.",
        _figure22,
    ),
    "figure23": (
        "Energy of training, elastic against full, where the device has a sensor.",
        lambda figure: _full_and_elastic(figure, "energy"),
    ),
    "table2": ("Time to a target accuracy, against the best baseline.", _table2),
}


def main(arguments: Sequence[str]) -> int:
    """Make the figure that `arguments` name; returns the exit status."""
    if {"-h", "--help"} & set(arguments):
        print(__doc__ + "\nNAME is one of:")
        print("\n".join(f"    {name:<12}{about}" for name, (about, _) in FIGURES.items()))
        return 0
    seeds, format = (os.environ.get("SEEDS") or "0").split(), os.environ.get("FORMAT") or "png"
    wrong = ""
    if len(arguments) != 1 or arguments[0] not in FIGURES:
        names = " ".join(FIGURES)
        wrong = f"usage: bash scripts/figure.sh NAME (or --help); NAME is one of: {names}"
    elif format not in FORMATS:
        wrong = f"FORMAT={format} is none of: {' '.join(FORMATS)}"
    elif not all(seed.isdecimal() for seed in seeds):
        wrong = f'SEEDS="{os.environ["SEEDS"]}" is no list of seeds, such as "0 1 2"'
    if wrong:
        print(wrong, file=sys.stderr)
        return 2
    figure = Figure(arguments[0], seeds, format)
    try:
        FIGURES[figure.name][1](figure)
        return figure.report()
    except UsageError as error:
        print(f"figure.py: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
