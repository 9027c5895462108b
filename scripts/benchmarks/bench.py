"""The parts that benchmarks of training share: a model that trains on images, its profile, timing in turn."""

import argparse
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, TypeVar

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import psutil

from elastictrainer import Profile
from elastictrainer.runs import environment
from elastictrainer.runs.files import write_json

_STOLEN = 0.03  # of one core: if the host takes more in a round, a ratio is off by more than the targets
_Result = TypeVar("_Result")
MODELS = ("resnet50", "vgg16", "mobilenetv2", "vit")


def parser(description: str, output: str, models: Sequence[str] = MODELS) -> argparse.ArgumentParser:
    """The options that the benchmarks share."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("models", nargs="*", default=list(models), help=f"default: {' '.join(models)}")
    made.add_argument(
        "--images", default="demo", help="a data set of et-train; real images make real importances"
    )
    made.add_argument(
        "--weights", default="none", help="weights file of mobilenetv2; the others have random weights"
    )
    made.add_argument("--batch-size", type=int, default=4)
    made.add_argument("--importance-batches", type=int, default=5)
    made.add_argument(
        "--warm",
        type=int,
        help="full training steps before anything is measured (400 from a zero head, else 12)",
    )
    made.add_argument(
        "--profiles", default="benchmark-output/profiles", help="folder of profiles, made where missing"
    )
    made.add_argument(
        "--output", default=output, help="JSON file to write; other models' results in it are kept"
    )
    return made


class Results:
    """The rows of a benchmark's JSON file; those of the models that are measured now are replaced."""

    def __init__(self, options: argparse.Namespace):
        self._options = options
        path = Path(options.output)
        kept = json.loads(path.read_text())["rows"] if path.exists() else []
        self.rows: List[Dict[str, Any]] = [row for row in kept if row["model"] not in options.models]

    def add(self, row: Dict[str, Any]) -> None:
        """One more row, written at once."""
        self.rows.append(row)
        write_json(
            self._options.output,
            {"rows": self.rows, "options": vars(self._options), **environment.describe()},
        )


@dataclass
class Bench:
    """A model that has trained a few full steps, ready to be timed."""

    name: str
    model: Any
    optimizer: Any
    objective: Any
    data: Any
    profile: Profile
    steps: Any

    def minibatches(self) -> Iterator[Tuple[Any, Any]]:
        """Training minibatches without end."""
        epoch = 0
        while True:
            yield from self.data.train(epoch)
            epoch += 1

    def evaluator(self) -> Any:
        from elastictrainer.selection.importance import ImportanceEvaluator

        return ImportanceEvaluator(self.objective, self.optimizer, steps=self.steps)


def prepare(name: str, options: argparse.Namespace, warm: Optional[int] = None) -> Bench:
    """Model, data and profile as et-train makes them, after `warm` full training steps (--warm if not given).

    A model of random weights gets a random head too: over random features a zero head learns nothing in so
    few steps, and every tensor below it would score zero.
    """
    import tensorflow as tf

    from elastictrainer import profile_model
    from elastictrainer.experiment import assembly
    from elastictrainer.experiment.settings import TrainSettings
    from elastictrainer.runs import resident
    from elastictrainer.steps.compiled_step import CompiledSteps
    from elastictrainer.steps.objective import Objective, classification_loss

    assembly.configure(0)
    weights = options.weights if name == "mobilenetv2" else "none"
    settings = TrainSettings(
        model=name,
        dataset=options.images,
        weights=weights,
        head_init="glorot" if weights == "none" else "zeros",
        augment=None if name == "demo" else "paper",
        batch_size=options.batch_size,
        optimizer="adam" if name == "vit" else "sgd",
    )
    data = assembly.load_data(settings)
    model = assembly.make_model(settings, len(data.class_names))
    optimizer = assembly.make_optimizer(settings)
    objective = Objective(model, classification_loss())
    steps = CompiledSteps(objective, optimizer, [tf.keras.metrics.SparseCategoricalAccuracy()])
    path = Path(options.profiles, f"{name}_b{options.batch_size}.json")
    if path.exists():
        profile = Profile.load(path)
    else:
        about = {"model": name, "batch_size": options.batch_size}
        profile = profile_model(
            model, classification_loss(), next(iter(data.train(0))), optimizer, metadata=about
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        profile.save(path)
    made = Bench(name, model, optimizer, objective, data, profile, steps)
    batches = made.minibatches()
    full = steps.get(profile.connected)
    if warm is None:
        warm = options.warm or (400 if settings.head_init == "zeros" else 12)
    for _ in range(warm):
        full(*next(batches))
    resident.exempt_from_collection()  # as et-train does
    return made


def stolen_seconds() -> float:
    """Processor seconds that a host has kept from this virtual machine so far; 0 where nobody counts them."""
    return float(getattr(psutil.cpu_times(), "steal", 0.0))


def undisturbed(measure: Callable[[], _Result], rounds: int, patience: int = 3) -> List[_Result]:
    """What `measure` returned in the `rounds` calls in which a virtual machine's host took the least.

    It calls `measure` until in `rounds` calls the host took next to nothing, and at most `patience` times as
    often.
    """
    results: List[_Result] = []
    stolen: List[float] = []
    while len(results) < patience * rounds and np.sum(np.array(stolen) <= _STOLEN) < rounds:
        start, before = time.perf_counter(), stolen_seconds()
        results.append(measure())
        stolen.append((stolen_seconds() - before) / (time.perf_counter() - start))
    return [results[k] for k in np.argsort(stolen, kind="stable")[:rounds]]


def median_ratio(
    one: Callable[[], float], other: Callable[[], float], rounds: int
) -> Tuple[float, List[float]]:
    """The median over rounds of one()/other(), run in turn, and all of them.

    See `undisturbed` for rounds in which a virtual machine's host took the processors away.
    """
    ratios = undisturbed(lambda: one() / other(), rounds)
    return float(np.median(ratios)), ratios
