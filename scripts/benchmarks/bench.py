"""The parts that benchmarks of training share: a model that trains on images, its profile, timing in turn, a
process for each measurement, and tables.
"""

import argparse
import itertools
import json
import multiprocessing
import os
import re
import time
from concurrent.futures import ProcessPoolExecutor
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


def bare_parser(description: str) -> argparse.ArgumentParser:
    """A parser that shows the script's docstring as it is."""
    return argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def parser(
    description: str, output: str, models: Sequence[str] = MODELS, what: Sequence[str] = ()
) -> argparse.ArgumentParser:
    """The options that the benchmarks share; first, which measurement of `what` to make."""
    made = bare_parser(description)
    if what:
        made.add_argument("what", choices=what)
    made.add_argument("models", nargs="*", default=list(models), help=f"default: {' '.join(models)}")
    made.add_argument("--images", default="demo", help="a data set of et-train; real ones have importances")
    made.add_argument("--weights", default="none", help="file of mobilenetv2's; the others' are random")
    made.add_argument("--batch-size", type=int, default=4)
    made.add_argument("--warm", type=int, help="full steps before all (400 from a zero head, else 12)")
    made.add_argument("--profiles", default="benchmark-output/profiles", help="folder; made where missing")
    made.add_argument("--output", default=output, help="JSON file; other models' results in it are kept")
    return made


class Results:
    """The rows of a benchmark: printed as a table, and written to a JSON file. There, rows of the models that
    are measured now are replaced.
    """

    def __init__(self, options: argparse.Namespace, columns: Dict[str, str]):
        """`columns`: by name, how a value is formatted, with its width: `>8.1f`."""
        self._options, self._columns = options, columns
        path = Path(options.output)
        kept = json.loads(path.read_text())["rows"] if path.exists() else []
        self.rows: List[Dict[str, Any]] = [row for row in kept if row["model"] not in options.models]
        self._widths = [re.sub(r"\..*|[a-z%]$", "", how) for how in columns.values()]
        print("".join(map(format, columns, self._widths)))

    def add(self, row: Dict[str, Any]) -> None:
        """One more row, printed and written at once."""
        self.rows.append(row)
        cells = []
        for (name, how), width in zip(self._columns.items(), self._widths):
            cells.append(format("", width) if row.get(name) is None else format(row[name], how))
        print("".join(cells), flush=True)
        about = {"options": vars(self._options), **environment.describe()}
        write_json(self._options.output, {"rows": self.rows, **about})


def elsewhere(measure: Callable[..., _Result], *arguments: Any) -> _Result:
    """What a function of a script returns in a process of its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(measure, *arguments).result()


def peak_above(before: int, run: Callable[[], Any]) -> int:
    """Bytes by which this process's resident memory exceeds `before` at its peak in a call."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here on
    run()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * int(status["VmHWM"].split()[0]) - before


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
        for epoch in itertools.count():
            yield from self.data.train(epoch)

    def evaluator(self) -> Any:
        from elastictrainer.selection.importance import ImportanceEvaluator

        return ImportanceEvaluator(self.objective, self.optimizer, steps=self.steps)


def prepare(
    name: str, options: argparse.Namespace, warm: Optional[int] = None, roughly: bool = False
) -> Bench:
    """Model, data and profile as et-train makes them, after `warm` full training steps (--warm if not given).

    A model of random weights gets a random head too: over random features a zero head learns nothing in so
    few steps, and every tensor below it would score zero. `roughly`: times of the profile do not matter.
    """
    import tensorflow as tf

    from elastictrainer import profile_model
    from elastictrainer.experiment import assembly
    from elastictrainer.experiment.settings import TrainSettings
    from elastictrainer.runs import resident
    from elastictrainer.steps import optimizers
    from elastictrainer.steps.compiled_step import CompiledSteps
    from elastictrainer.steps.objective import Objective, classification_loss

    assembly.configure(0)
    own = ":" in name
    weights = options.weights if name == "mobilenetv2" else "none"
    settings = TrainSettings(
        model=name,
        dataset=options.images,
        image_size=128 if own else None,
        weights="imagenet" if own else weights,
        head_init="solve" if own else "glorot" if weights == "none" else "zeros",
        augment=None if own or name == "demo" else "paper",
        batch_size=options.batch_size,
        optimizer="adam" if name == "vit" else "sgd",
    )
    data = assembly.load_data(settings)
    model = assembly.make_model(settings, len(data.class_names))
    optimizer = assembly.make_optimizer(settings)
    optimizers.build(optimizer, model.trainable_variables)
    objective = Objective(model, classification_loss())
    steps = CompiledSteps(objective, optimizer, [tf.keras.metrics.SparseCategoricalAccuracy()])
    file = f"{name.replace(':', '-')}_b{options.batch_size}{'_rough' if roughly else ''}.json"
    path = Path(options.profiles, file)
    if path.exists():
        profile = Profile.load(path)
    else:
        about = {"model": name, "batch_size": options.batch_size}
        how = {"warmup_steps": 1, "steps": 2, "calibrate_s": 0} if roughly else {}
        batch = next(iter(data.train(0)))
        profile = profile_model(model, classification_loss(), batch, optimizer, metadata=about, **how)
        path.parent.mkdir(parents=True, exist_ok=True)
        profile.save(path)
    made = Bench(name, model, optimizer, objective, data, profile, steps)
    if warm is None:
        warm = options.warm or (400 if settings.head_init == "zeros" else 12)
    batches = made.minibatches()
    for _ in range(warm):
        steps.get(profile.connected)(*next(batches))
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
