"""Reproduce one figure or table of the paper: profile, train what is missing, draw, and print the numbers.

    bash scripts/figure.sh NAME

  QUICK=1      the same figure on the demo data, in minutes (configs/quick.yaml)
  EGO=1        elastic training only, without the baselines
  DRY_RUN=1    print the commands
  SEEDS        "0 1 2": each run with each of these seeds; pictures and numbers are then means (0)
  FORMAT       of the pictures: png, pdf or svg (png)
  MODEL, DATASET, WEIGHTS, EPOCHS, RHO, RHOS   instead of the figure's own; one each, but for RHOS ("0.4 0.5")
  MEMORY       1.2GB: figure22 has one more run, within that memory
  OUTPUT       where runs and pictures go (figures-output); finished runs there are kept, interrupted ones
               resumed

If a run fails, the others go on and it is named at the end. Ctrl-C stops all; the same command continues.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Callable, Dict, List, Optional, Sequence, Tuple

import figure_numbers
from elastictrainer import Profile, UsageError

SCRIPTS = Path(__file__).resolve().parent
CONFIGS = SCRIPTS.parent / "configs"
BIRDS, PETS, DOGS = "caltech_birds2011", "oxford_iiit_pet", "stanford_dogs"
FORMATS = ("png", "pdf", "svg")
_INTERRUPTED = 130


def is_set(name: str) -> bool:
    """Return whether the variable `name` is 1."""
    return os.environ.get(name) == "1"


def values_of(name: str, *defaults: str) -> List[str]:
    """Return the value of the variable `name` if it is set, demo for QUICK, else the defaults."""
    own = os.environ.get(name)
    return [own] if own else ["demo"] if is_set("QUICK") else list(defaults)


def _part(name: str) -> str:
    """Return a data set or model as part of a file's name."""
    return re.sub(r"[^A-Za-z0-9]", "-", Path(name).name)


class Figure:
    """Trains and draws one figure.

    Every scheme is trained as in the paper, with --activation-cache off; those that freeze tensors are
    trained again with cache, in a folder whose name ends in -cache. Where the time is too short without
    cache, that is the only form.
    """

    def __init__(self, name: str, seeds: Sequence[str], format: str):
        self.name, self._seeds, self._format = name, seeds, format
        self.dataset, self.model = values_of("DATASET", BIRDS)[0], values_of("MODEL", "resnet50")[0]
        self._output = Path(os.environ.get("OUTPUT") or "figures-output")
        self.runs: List[str] = []
        self._failed: List[str] = []
        self._stopped = False  # by Ctrl-C, which the running command gets, too, and saves its work
        signal.signal(signal.SIGINT, self._note)
        self._profiles: Dict[Path, bool] = {}  # those that were asked for: whether they are there

    def profile(self, dataset: str, model: str) -> Optional[Path]:
        """Return the path of the profile; None where it could not be made."""
        path = self._output / "profiles" / f"{_part(dataset)}_{_part(model)}.json"
        if path not in self._profiles:
            command = ["et-profile", *self._common(dataset, model), "--profile", str(path)]
            self._profiles[path] = path.exists() or self._run(command, str(path))
        return path if self._profiles[path] else None

    def affordable(self, dataset: str, model: str, rho: str) -> bool:
        """Return whether this device can reach that ratio, by its profile."""
        path = self.profile(dataset, model)
        if path is None or not path.exists():  # DRY_RUN makes none
            return path is not None
        lowest = Profile.load(path).rho_min
        if float(rho) < lowest:
            print(f"left out: rho {rho} is below what this device can have ({lowest:.3f})")
        return float(rho) >= lowest

    def train(self, dataset: str, model: str, name: str, *options: str) -> None:
        """Train a run with each seed."""
        profile = self.profile(dataset, model)
        if profile is None:
            return
        epochs = os.environ.get("EPOCHS")
        for seed in self._seeds:
            more = [*(["--epochs", epochs] if epochs else []), *options]
            more += [] if seed == "0" else ["--seed", seed]
            run = f"{_part(dataset)}_{_part(model)}_{name}" + ("" if seed == "0" else f"_seed{seed}")
            folder, options_of = str(self._output / "runs" / run), [*self._common(dataset, model), *more]
            if not is_set("DRY_RUN"):
                script = ["bash", "-c", 'source "$0"; train_run "$@"', str(SCRIPTS / "train_run.sh")]
                if self._run([*script, folder, *options_of, "--profile", str(profile)], folder):
                    self.runs.append(folder)
            elif Path(folder, "summary.json").exists():
                print(f"finished: {folder}")
            else:
                options_of += ["--profile", str(profile), "--output", folder]
                self._run(["et-train", *options_of], folder)

    def paper_elastic(self, dataset: str, model: str, rho: str) -> None:
        """Train elastically as in the paper, if this device can reach that ratio."""
        if self.affordable(dataset, model, rho):
            self.train(dataset, model, f"elastic-{rho}", "--rho", rho, "--activation-cache", "off")

    def elastic(self, dataset: str, model: str, rho: str) -> None:
        """Train elastically without and with caching."""
        self.paper_elastic(dataset, model, rho)
        self.train(dataset, model, f"elastic-{rho}-cache", "--rho", rho, "--activation-cache", "auto")

    def baselines(self, dataset: str, model: str, *schemes: str) -> None:
        """Train schemes to compare with, unless EGO is set; traditional-tl without and with caching."""
        for scheme in () if is_set("EGO") else schemes:
            self.train(dataset, model, scheme, "--scheme", scheme, "--activation-cache", "off")
            if scheme == "traditional-tl":
                self.train(
                    dataset, model, f"{scheme}-cache", "--scheme", scheme, "--activation-cache", "auto"
                )

    def four_schemes(self, dataset: str, model: str) -> None:
        """Train elastically at rho 0.5, and the three baselines of most figures."""
        self.baselines(dataset, model, "full", "traditional-tl", "bn-bias")
        self.elastic(dataset, model, "0.5")

    def by_rho(self, dataset: str, model: str, *defaults: str) -> None:
        """Train elastically at each ratio of RHOS."""
        for rho in (os.environ.get("RHOS") or " ".join(defaults)).split():
            self.elastic(dataset, model, rho)

    def curves_by_dataset(self, model: str, *datasets: str) -> None:
        """Draw accuracy and loss over time of four schemes, a picture of each for each data set."""
        for dataset in values_of("DATASET", *datasets):
            before = len(self.runs)
            self.four_schemes(dataset, model)
            self.draw(f"{self.name}_{_part(dataset)}_accuracy", "curves", runs=self.runs[before:])
            self.draw(f"{self.name}_{_part(dataset)}_loss", "curves", "--y", "loss", runs=self.runs[before:])

    def draw(self, name: str, kind: str, *options: str, runs: Optional[List[str]] = None) -> None:
        """Draw `runs`, or all so far, and write the data drawn."""
        runs = self.runs if runs is None else runs
        if runs and not is_set("DRY_RUN"):
            picture, data = (str(self._output / f"{name}.{end}") for end in (self._format, "csv"))
            command = ["et-plot", kind, *runs, *options, "--output", picture, "--csv", data]
            self._run(command, f"{name}.{self._format}")

    def report(self) -> int:
        """Print and write the figure's numbers with the paper's, then name what failed; an exit status."""
        if self.runs and not is_set("DRY_RUN"):
            figure_numbers.report(self.name, self.runs, str(self._output / f"{self.name}.json"))
        for failed in self._failed:
            print(f"failed: {failed}", file=sys.stderr)
        return 1 if self._failed else 0

    def _note(self, *_: object) -> None:
        self._stopped = True

    def _common(self, dataset: str, model: str) -> List[str]:
        """Return the options that et-profile and et-train share."""
        own = CONFIGS / f"paper-{model}.yaml"
        usual = own if own.exists() else CONFIGS / "paper.yaml"
        config = CONFIGS / "quick.yaml" if is_set("QUICK") else usual
        weights = os.environ.get("WEIGHTS")
        more = ["--weights", weights] if weights else []
        return ["--config", str(config), "--dataset", dataset, "--model", model, *more]

    def _run(self, command: Sequence[str], what: str) -> bool:
        """Run a command, or print it as it can be typed; return whether it succeeded. Ctrl-C: SystemExit."""
        if is_set("DRY_RUN"):
            print(shlex.join(command))
            return True
        status = subprocess.run(command).returncode
        if status == _INTERRUPTED or self._stopped:
            print("stopped; the same command goes on from here", file=sys.stderr)
            raise SystemExit(_INTERRUPTED)
        if status:
            self._failed.append(what)
        return not status


def _figure17(figure: Figure) -> None:
    figure.by_rho(figure.dataset, figure.model, "0.35", "0.4", "0.5", "0.6", "0.7")
    figure.baselines(figure.dataset, figure.model, "full", "traditional-tl", "bn-bias", "prunetrain")
    figure.draw("figure17", "curves")
    figure.draw("figure17_flops", "curves", "--y", "flops")


def _figure18(figure: Figure) -> None:
    figure.baselines(figure.dataset, figure.model, "full")
    figure.by_rho(figure.dataset, figure.model, "0.4", "0.5", "0.6", "0.7")
    figure.draw("figure18", "curves", "--x", "epochs", "--y", "flops")


def _figure19(figure: Figure) -> None:
    for model in values_of("MODEL", "resnet50", "vgg16", "mobilenetv2", "vit"):
        figure.baselines(figure.dataset, model, "full")
        figure.elastic(figure.dataset, model, os.environ.get("RHO") or "0.4")
    figure.draw("figure19", "curves")


def _figure20(figure: Figure) -> None:
    figure.paper_elastic(figure.dataset, figure.model, "0.5")
    if figure.affordable(figure.dataset, figure.model, "0.5"):
        for metric in ("elastic-weight-magnitude", "elastic-grad-magnitude"):
            options = ("--scheme", metric, "--rho", "0.5", "--activation-cache", "off")
            figure.train(figure.dataset, figure.model, metric, *options)
    figure.draw("figure20", "curves")


def _figure21(figure: Figure) -> None:
    figure.paper_elastic(figure.dataset, figure.model, "0.5")
    for run in figure.runs:
        seed = re.search(r"_seed\d+$", run)
        figure.draw("figure21" + (seed[0] if seed else ""), "selection", runs=[run])


def _full_and_elastic(figure: Figure) -> None:
    """Train what the printed table compares: it has memory and energy, which no curve shows."""
    memory = os.environ.get("MEMORY") if figure.name == "figure22" else None
    if memory:
        options = ("--rho", "0.5", "--memory", memory, "--activation-cache", "auto")
        figure.train(figure.dataset, figure.model, f"elastic-0.5-{memory}", *options)
    figure.baselines(figure.dataset, figure.model, "full")
    figure.elastic(figure.dataset, figure.model, "0.5")
    figure.draw(figure.name, "curves")


def _table2(figure: Figure) -> None:
    for dataset in values_of("DATASET", BIRDS, PETS, DOGS):
        figure.four_schemes(dataset, figure.model)


FIGURES: Dict[str, Tuple[str, Callable[[Figure], None]]] = {
    "figure15": (
        "Accuracy (a-c) and loss (d-f) over training time, four schemes on three data sets.",
        lambda figure: figure.curves_by_dataset(figure.model, BIRDS, PETS, DOGS),
    ),
    "figure15ad": (
        "Figure 15 (a) and (d): its first data set alone.",
        lambda figure: figure.curves_by_dataset(figure.model, BIRDS),
    ),
    "figure16": (
        "As Figure 15, on the two data sets that the paper trained on a Raspberry Pi.",
        lambda figure: figure.curves_by_dataset(figure.model, PETS, DOGS),
    ),
    "figure17": ("Accuracy against time (a, c) and FLOPs (b, d), by rho and baseline.", _figure17),
    "figure18": ("FLOPs of every epoch, by rho.", _figure18),
    "figure19": ("Accuracy and time of four models at rho 0.4, against full training.", _figure19),
    "figure20": ("Three metrics of importance, at the same time.", _figure20),
    "figure21": ("Which tensors each selection chose.", _figure21),
    "figure22": ("Peak memory, elastic against full training.", _full_and_elastic),
    "figure23": ("Energy, elastic against full, where the device has a sensor.", _full_and_elastic),
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
