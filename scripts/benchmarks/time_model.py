"""Predicted against measured time of selections, on the models of the package and on others.

    python scripts/benchmarks/time_model.py --output time_model.json
    python scripts/benchmarks/time_model.py resnet50 gru-lstm-text --batch 16 --inter-op 1
    python scripts/benchmarks/time_model.py mobilenetv2 gru-lstm-text demo --cached --selections 12

Each model is profiled in a new process; then 20 selections are measured, each in turn with the full step:
near the output, scattered, a single deep tensor, biases only, normalisation only, all. Three passes measure
all of them; the median counts, since other work on the machine comes and goes. Target: median error 3 %,
90th percentile 8 %, coverage 99 % of the busy time. "noise" is the error of the same measurement of the full
step against itself. The host of a virtual machine may take the processors away: measurements are then
repeated, up to a limit.

With --cached selections are random, and their whole steps, writing and cached steps are compared; goal for
cached steps: a median of 4 %, nine in ten below 10 %. "mean" is positive where predicted too long.
"""

import itertools
from functools import partial
from typing import Any, Dict, List, Tuple

import numpy as np

import bench
from elastictrainer import Profile
from elastictrainer.steps.timing import CACHE_READ, CACHE_WRITE, PLAIN
from zoo import ZOO, made

_PARTS = ("median", "90th", "mean")  # of errors
_ERRORS = ("coverage", "median_error", "p90_error", "noise_median", "noise_p90")
_NOISE = 3  # measurements of the full step against itself: as many have a median
_PASSES = 3  # over all selections, for the same reason
_CACHED_S = 3.0  # of each measurement with the cache
_PATIENCE = 30  # times as many rounds as needed, to find enough from which the host took nothing


def masks(profile: Profile, count: int, seed: int = 0) -> List[Tuple[str, np.ndarray]]:
    """(kind, (N,) bool) selections, the kinds in turn; a kind that a model has no tensor for is left out."""
    random = np.random.default_rng(seed)
    n = len(profile)
    order = profile.order[profile.connected[profile.order]]
    last = np.array([name.split("/")[-1].split(":")[0] for name in profile.names])
    norm = np.isin(last, ("gamma", "beta"))
    bias = last == "bias"

    def of(indices: Any) -> np.ndarray:
        mask = np.zeros(n, bool)
        mask[indices] = True
        return mask & profile.connected

    kinds = {
        "near the output": lambda: of(order[: random.integers(1, len(order) + 1)]),
        "scattered": lambda: of(np.flatnonzero(random.random(n) < random.uniform(0.05, 0.6))),
        "single deep": lambda: of([order[random.integers(len(order) // 2, len(order))]]),
        "bias only": lambda: of(np.flatnonzero(bias & (random.random(n) < 0.7))),
        "norm only": lambda: of(np.flatnonzero(norm & (random.random(n) < 0.7))),
        "all": lambda: profile.connected.copy(),
    }
    chosen: List[Tuple[str, np.ndarray]] = []
    for kind in itertools.islice(itertools.cycle(kinds), 20 * count):
        mask = kinds[kind]()
        again = kind == "all" and any(other == kind for other, _ in chosen)
        if mask.any() and len(chosen) < count and not again:
            chosen.append((kind, mask))
    return chosen


def measure(name: str, batch_size: int, inter_op: int, count: int, seconds: float) -> Dict[str, Any]:
    """Profile one model in this process, and compare predicted with measured times."""
    import tensorflow as tf

    from elastictrainer import profile_model
    from elastictrainer.experiment.assembly import configure
    from elastictrainer.profiler.calibration import ratios_to_full
    from elastictrainer.steps import optimizers
    from elastictrainer.steps.compiled_step import CompiledStep, CompiledSteps
    from elastictrainer.steps.objective import Objective

    if inter_op:
        tf.config.threading.set_inter_op_parallelism_threads(inter_op)
    configure(seed=0)
    model, loss, batch = made(name, batch_size)
    optimizer = optimizers.make("sgd")
    profile = profile_model(model, loss, batch, optimizer)
    chosen = masks(profile, count)
    every = [profile.connected] * _NOISE + [mask for _, mask in chosen]
    full = CompiledStep(Objective(model, loss), optimizer, model.trainable_variables)
    full.trace(*batch)  # steps of selections are cut out of it, as in a run
    cache = CompiledSteps(full.objective, optimizer, size=len(every) + 1, full=full)
    random = np.random.default_rng(0)
    passes = np.empty((_PASSES, len(every)))
    for one in passes:
        for k in random.permutation(len(every)):
            how = {"rounds": 1, "repeat": partial(bench.undisturbed, patience=_PATIENCE)}
            (one[k],) = ratios_to_full(cache.get, [every[k]], profile.connected, batch, seconds, **how)
    noise, ratios = np.split(np.median(passes, axis=0), [_NOISE])
    noise = np.abs(noise - 1)
    full_ms = profile.step_time(profile.connected)
    rows = []
    for (kind, mask), ratio in zip(chosen, ratios):
        ms = {"predicted_ms": profile.step_time(mask), "measured_ms": ratio * full_ms}
        rows.append({"kind": kind, "selected": np.flatnonzero(mask).tolist(), **ms})
    off = np.abs([row["predicted_ms"] / row["measured_ms"] - 1 for row in rows])
    return {
        "model": name,
        "batch": batch_size,
        "inter_op": inter_op,
        "tensors": len(profile),
        "full_ms": profile.full_ms,
        "rho_min": profile.rho_min,
        "frozen_saving": profile.frozen_saving,
        "overlap": profile.overlap,
        "coverage": profile.metadata["coverage"],
        "median_error": float(np.median(off)),
        "p90_error": float(np.quantile(off, 0.9)),
        "noise_median": float(np.median(noise)),
        "noise_p90": float(np.quantile(noise, 0.9)),
        "worst": rows[int(np.argmax(off))]["kind"],
        "selections": rows,
    }


def cached(ready: Tuple[Any, ...], mask: np.ndarray) -> Dict[str, Any]:
    """Ratios of a selection's whole and cached steps to a full step, and the profile's."""
    from elastictrainer.cache.costs import TimedVariants
    from elastictrainer.cache.storage import NotCacheable

    full, batch, profile = ready
    try:
        steps = TimedVariants(profile, mask, full, batch)
    except NotCacheable as error:
        return {"selected": int(mask.sum()), "unusable": str(error)}
    passes = [steps.ratios(_CACHED_S) for _ in range(_PASSES)]
    steps.close()
    predicted_ms = {
        PLAIN: profile.step_time(mask),
        CACHE_WRITE: profile.cache_write_time(mask),
        CACHE_READ: profile.with_cache.step_time(mask),
    }
    found = {kind: float(np.median([ratios[kind] for ratios in passes])) for kind in predicted_ms}
    errors = {f"{kind} error": ms / profile.full_ms / found[kind] - 1 for kind, ms in predicted_ms.items()}
    return {"selected": int(mask.sum()), **found, **errors}


def measure_cached(name: str, batch_size: int, count: int) -> Dict[str, Any]:
    """Profile one model in this process, and compare times of whole and cached steps of random selections."""
    from elastictrainer import profile_model
    from elastictrainer.cache.costs import with_cache_costs
    from elastictrainer.experiment.assembly import configure
    from elastictrainer.profiler.calibration import random_masks
    from elastictrainer.steps import optimizers
    from elastictrainer.steps.compiled_step import CompiledStep
    from elastictrainer.steps.objective import Objective

    configure(seed=0)
    model, loss, batch = made(name, batch_size)
    optimizer, objective = optimizers.make("sgd"), Objective(model, loss)
    optimizers.build(optimizer, model.trainable_variables)
    profile = with_cache_costs(profile_model(model, loss, batch, optimizer), objective, optimizer, batch)
    full = CompiledStep(objective, optimizer, model.trainable_variables)
    full.trace(*batch)
    rows = [cached((full, batch, profile), mask) for mask in random_masks(profile, count, seed=0)]
    usable = [row for row in rows if CACHE_READ in row]
    summary: Dict[str, Any] = {"model": name, "batch": batch_size, "selections": rows, "usable": len(usable)}
    for kind in (PLAIN, CACHE_WRITE, CACHE_READ) if usable else ():
        error = np.array([row[f"{kind} error"] for row in usable])
        parts = np.median(np.abs(error)), np.quantile(np.abs(error), 0.9), error.mean()
        summary.update({f"{kind} {part}": float(value) for part, value in zip(_PARTS, parts)})
    return summary


def main() -> None:
    parser = bench.bare_parser(__doc__)
    parser.add_argument("models", nargs="*", default=list(ZOO), help="of the zoo, or of et-train")
    parser.add_argument("--batch", type=int, nargs="+", default=[4])
    parser.add_argument("--inter-op", type=int, nargs="+", default=[0], help="threads; 0: TensorFlow chooses")
    parser.add_argument("--selections", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement in each pass")
    parser.add_argument("--cached", action="store_true", help="whole and cached steps")
    parser.add_argument("--output", default="time_model.json", help="other models' rows in it are kept")
    asked = parser.parse_args()
    if asked.cached:
        columns = {f"{kind} {part}": ">20.1%" for kind in (PLAIN, CACHE_READ) for part in _PARTS}
    else:
        columns = {"full_ms": ">9.1f", **dict.fromkeys(_ERRORS, ">14.1%"), "worst": ">18"}
    results = bench.Results(asked, {"model": "<20", "batch": ">6", "inter_op": ">9", **columns})
    for name, batch in itertools.product(asked.models, asked.batch):
        if asked.cached:
            results.add(bench.elsewhere(measure_cached, name, batch, asked.selections))
            continue
        for inter_op in asked.inter_op:
            results.add(bench.elsewhere(measure, name, batch, inter_op, asked.selections, asked.seconds))


if __name__ == "__main__":
    main()
