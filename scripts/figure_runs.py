"""The runs and pictures of one figure of the paper: profiles, trains the missing runs, draws, prints numbers.

Settings come from the environment variables that figure.py lists.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Dict, List, Sequence, Tuple

import figure_data
import figure_hours
from elastictrainer import Profile

SCRIPTS = Path(__file__).resolve().parent
CONFIGS = SCRIPTS.parent / "configs"
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
        self._output = Path(os.environ.get("OUTPUT") or "figures-output")
        self._runs: List[str] = []
        self._failed: List[str] = []
        self._plan: List[List[str]] = []  # of a dry run: the profile and the options of each run
        self._stopped = False  # by Ctrl-C, which the running command gets, too, and saves its work
        signal.signal(signal.SIGINT, self._note)
        self._profiles: Dict[Path, bool] = {}  # those that were asked for: whether they are there

    def profile(self, dataset: str, model: str) -> Tuple[Path, bool]:
        """Return the path of the profile, and whether it exists or could be made."""
        path = self._output / "profiles" / f"{_part(dataset)}_{_part(model)}.json"
        if path not in self._profiles:
            command = ["et-profile", *self._common(dataset, model), "--profile", str(path)]
            self._profiles[path] = path.exists() or self._run(command, str(path))
        return path, self._profiles[path]

    def affordable(self, dataset: str, model: str, rho: str) -> bool:
        """Return whether this device can reach that ratio, by its profile."""
        path, _ = self.profile(dataset, model)
        if not path.exists():
            return is_set("DRY_RUN")
        lowest = Profile.load(path).rho_min
        if float(rho) < lowest:
            print(f"left out: rho {rho} is below what this device can have ({lowest:.3f})")
        return float(rho) >= lowest

    def train(self, dataset: str, model: str, name: str, *options: str) -> None:
        """Train a run with each seed."""
        profile, made = self.profile(dataset, model)
        if not made:
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
                    self._runs.append(folder)
            elif Path(folder, "summary.json").exists():
                print(f"finished: {folder}")
            else:
                options_of += ["--profile", str(profile), "--output", folder]
                self._run(["et-train", *options_of], folder)
                self._plan.append([str(profile), *options_of])

    def paper_elastic(self, dataset: str, model: str, rho: str) -> None:
        """Train elastically as in the paper, if this device can reach that ratio."""
        if self.affordable(dataset, model, rho):
            self.train(
                dataset,
                model,
                f"elastic-{rho}",
                "--scheme",
                "elastic",
                "--rho",
                rho,
                "--activation-cache",
                "off",
            )

    def elastic(self, dataset: str, model: str, rho: str) -> None:
        """Train elastically without and with caching."""
        self.paper_elastic(dataset, model, rho)
        self.train(dataset, model, f"elastic-{rho}-cache", "--scheme", "elastic", "--rho", rho)

    def baselines(self, dataset: str, model: str, *schemes: str) -> None:
        """Train schemes to compare with, unless EGO is set; traditional-tl without and with caching."""
        for scheme in () if is_set("EGO") else schemes:
            self.train(dataset, model, scheme, "--scheme", scheme, "--activation-cache", "off")
            if scheme == "traditional-tl":
                self.train(dataset, model, f"{scheme}-cache", "--scheme", scheme)

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
        everything: List[str] = []
        for dataset in values_of("DATASET", *datasets):
            self._runs = []
            self.four_schemes(dataset, model)
            self.draw(f"{self.name}_{_part(dataset)}_accuracy", "curves")
            self.draw(f"{self.name}_{_part(dataset)}_loss", "curves", "--y", "loss")
            everything += self._runs
        self._runs = everything

    def draw(self, name: str, kind: str, *options: str) -> None:
        """Draw all runs so far, and write the data drawn."""
        if self._runs and not is_set("DRY_RUN"):
            picture, data = (str(self._output / f"{name}.{end}") for end in (self._format, "csv"))
            command = ["et-plot", kind, *self._runs, *options, "--output", picture, "--csv", data]
            self._run(command, f"{name}.{self._format}")

    def draw_each(self, name: str, kind: str) -> None:
        """Draw a picture of each run so far; the names of all but the first seed's end in the seed."""
        everything = self._runs
        for run in everything:
            seed = re.search(r"_seed\d+$", run)
            self._runs = [run]
            self.draw(name + (seed[0] if seed else ""), kind)
        self._runs = everything

    def report(self) -> int:
        """Print and write the figure's numbers with the paper's, then name what failed; an exit status."""
        if is_set("DRY_RUN"):
            if self._plan:
                print(figure_hours.text(self.name, self._plan))
            return 0
        if self._runs:
            figure_data.table(self.name, self._runs, str(self._output / f"{self.name}.json"))
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
        """Run a command, or print it as it can be typed; return whether it succeeded.

        Raises:
            SystemExit: it was stopped.
        """
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
