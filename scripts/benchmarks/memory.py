"""The memory of a step: of selections against full training's, and predicted against measured.

    python scripts/benchmarks/memory.py --images path/to/images --weights path/to/mobilenet_v2.h5
    python scripts/benchmarks/memory.py --limited --shares 0.75 0.5 0.25 random

Each row is measured in a new process: the peak of resident memory of a few steps above that of the process
with model and optimizer, and the prediction of a profile from another process. --limited: freed memory goes
back to the system, as with `et-train --memory`; without it the prediction does not hold. Shares are of the
way from the cheapest step to the full one; `random` is three tensors in ten.
"""

import math
from typing import Any, Dict

import numpy as np

import bench
from elastictrainer import select
from elastictrainer.runs import resident

_STEPS = 10
_MODELS = ("mobilenetv2", "resnet50", "vgg16", "vit", "zoo:joining", "zoo:gated")


def chosen(profile: Any, which: str) -> np.ndarray:
    """(N,) bool: a selection of random importances: how deep it is matters more than which tensors it has."""
    random, memory = np.random.default_rng(0), profile.memory
    if which == "full":
        return profile.connected
    if which == "random":
        return profile.connected & (random.random(len(profile)) < 0.3)
    importance = random.lognormal(0, 2, len(profile))
    least, most = memory.alone[profile.connected].min(), memory.step_bytes(profile.connected)
    limit = memory.loaded + least + float(which) * (most - least)
    return select(profile, importance, 1.0, memory=limit).mask


def profiled(name: str, options: Any) -> None:
    """Make the profile, if there is none."""
    bench.prepare(name, options, warm=0, roughly=options.limited)


def measured(name: str, which: str, options: Any) -> Dict[str, Any]:
    """Megabytes that a few steps of a selection take in this process, and the prediction."""
    if options.limited:
        resident.give_back_freed_memory()
    made = bench.prepare(name, options, warm=0, roughly=options.limited)
    mask, batches = chosen(made.profile, which), made.minibatches()
    before = resident.settled_bytes()

    def steps() -> None:
        for _ in range(_STEPS):
            float(made.steps.get(mask)(*next(batches)))

    above, predicted = bench.peak_above(before, steps), made.profile.memory.step_bytes(mask)
    sizes = {"before": before / 1e6, "above": above / 1e6, "predicted": predicted / 1e6}
    return {"model": name, "selection": which, "tensors": int(mask.sum()), **sizes}


def main() -> None:
    parser = bench.parser(__doc__, "memory.json", _MODELS)
    parser.add_argument("--shares", nargs="*", default=[], help="of steps' memory; `random`: any tensors")
    parser.add_argument("--limited", action="store_true", help="as under --memory, and a quick profile")
    options = parser.parse_args()
    columns = {"model": "<14", "selection": "<13", "tensors": ">8", "before": ">8.0f", "above": ">8.0f"}
    results = bench.Results(options, {**columns, "of full": ">9.3f", "predicted": ">11.0f", "error": ">8.1%"})
    for name in options.models:
        bench.elsewhere(profiled, name, options)
        full = math.nan
        for which in ("full", *options.shares):
            row = bench.elsewhere(measured, name, which, options)
            if which == "full":
                full = row["above"]
            error = row["predicted"] / row["above"] - 1
            results.add({**row, "of full": row["above"] / full, "error": error})


if __name__ == "__main__":
    main()
