"""Steps that record and steps that replay: predicted against measured, each in turn with the full step.

    python scripts/benchmarks/activation_cache.py mobilenetv2 resnet50 gru vgg16 demo
    python scripts/benchmarks/activation_cache.py mobilenetv2 --runs runs/mine    # what these selected

Selections are random: a random depth, and a random share of the tensors above it. The ratio of a replayed
step to a full one is held against the profile's. Goal: errors of replayed steps with a median of 4 % at most,
and nine in ten below 10 %; medians of three passes. Positive: predicted too long.
"""

from typing import Any, Callable, Dict, List, Tuple

import numpy as np

import bench
from elastictrainer.profiler.calibration import random_masks
from elastictrainer.runs.run_folder import RunFolder
from elastictrainer.steps.timing import CACHE_READ, CACHE_WRITE, PLAIN

PASSES, SECONDS, SELECTIONS = 3, 3.0, 12
MODELS = ("mobilenetv2", "resnet50", "gru", "vgg16", "demo")
KINDS = (PLAIN, CACHE_WRITE, CACHE_READ)


def gru(batch_size: int) -> Tuple[Any, Callable[[], Any]]:
    """A text classifier on random words: embedding, two recurrent layers, a head."""
    import tensorflow as tf

    layers = tf.keras.layers
    inputs = tf.keras.Input((80,), dtype="int32")
    x = layers.Embedding(5000, 64, name="embedding")(inputs)
    x = layers.GRU(96, return_sequences=True, name="inner")(x)
    x = layers.GRU(96, name="outer")(x)
    model = tf.keras.Model(inputs, layers.Dense(20, name="head")(x))
    random = np.random.default_rng(0)

    def minibatch() -> Any:
        words = tf.constant(random.integers(0, 5000, (batch_size, 80)), tf.int32)
        return words, tf.constant(random.integers(0, 20, batch_size))

    return model, minibatch


def prepared(name: str, options: Any) -> Dict[str, Any]:
    """Steps, optimizer, profile with the costs of cache, and minibatches of a model."""
    from elastictrainer import profile_model
    from elastictrainer.cache.costs import with_cache_costs
    from elastictrainer.experiment import assembly
    from elastictrainer.steps import optimizers
    from elastictrainer.steps.compiled_step import CompiledSteps
    from elastictrainer.steps.objective import Objective, classification_loss

    if name == "gru":
        assembly.configure(0)
        model, minibatch = gru(16)
        optimizer = optimizers.make("sgd")
        optimizers.build(optimizer, model.trainable_variables)
        objective = Objective(model, classification_loss())
        profile = profile_model(model, objective, minibatch(), optimizer)
        made = {"minibatches": iter(minibatch, None), "steps": CompiledSteps(objective, optimizer)}
    else:
        ready = bench.prepare(name, options, warm=4)
        objective, optimizer, profile = ready.objective, ready.optimizer, ready.profile
        made = {"minibatches": ready.minibatches(), "steps": ready.steps}
    batch = next(made["minibatches"])
    return {**made, "batch": batch, "profile": with_cache_costs(profile, objective, optimizer, batch)}


def selections_of(folders: List[str], tensors: int) -> List[np.ndarray]:
    """Read the selections of the runs in these folders, as masks."""
    masks = []
    for folder in folders:
        for record in RunFolder(folder).selections():
            mask = np.zeros(tensors, bool)
            mask[record["selected"]] = True
            masks.append(mask)
    return masks


def measured(ready: Dict[str, Any], mask: np.ndarray) -> Dict[str, Any]:
    """Ratios of the steps of a selection to a full step, by kind, and the profile's."""
    from elastictrainer.cache.costs import TimedVariants
    from elastictrainer.cache.storage import NotCacheable

    compiled, profile = ready["steps"], ready["profile"]
    try:
        steps = TimedVariants(profile, mask, compiled.objective, compiled.optimizer, ready["batch"])
    except NotCacheable as error:
        return {"selected": int(mask.sum()), "unusable": str(error)}
    passes = [steps.ratios(SECONDS) for _ in range(PASSES)]
    steps.close()
    predicted = {
        PLAIN: profile.step_time(mask),
        CACHE_WRITE: profile.cache_write_time(mask),
        CACHE_READ: profile.with_cache.step_time(mask),
    }
    return {
        "selected": int(mask.sum()),
        "mb": float(profile.cache.cut_mb[profile.order[mask[profile.order]][-1]]),
        **{kind: float(np.median([found[kind] for found in passes])) for kind in predicted},
        **{f"{kind}_predicted": ms / profile.full_ms for kind, ms in predicted.items()},
    }


def main() -> None:
    parser = bench.parser(__doc__, "benchmark-output/cache.json", MODELS)
    parser.add_argument("--selections", type=int, default=SELECTIONS, help="how many (default: %(default)s)")
    parser.add_argument("--runs", nargs="+", metavar="RUN", help="folders of runs of the one model given")
    options = parser.parse_args()
    results = bench.Results(options)
    print(
        f"{'model':<14}{'selections':>11}"
        + "".join(f"{kind + ': median':>19}{'p90':>6}{'mean':>7}" for kind in KINDS)
    )
    for name in options.models:
        ready = prepared(name, options)
        profile = ready["profile"]
        masks = (
            selections_of(options.runs, len(profile))
            if options.runs
            else random_masks(profile, options.selections, seed=0)
        )
        rows = [measured(ready, mask) for mask in masks]
        usable = [row for row in rows if CACHE_READ in row]
        line = f"{name:<14}{f'{len(usable)}/{len(rows)}':>11}"
        summary = {}
        for kind in KINDS:
            error = np.array([row[f"{kind}_predicted"] / row[kind] - 1 for row in usable])
            size = np.abs(error)
            found = np.median(size), np.quantile(size, 0.9), error.mean()
            summary.update(zip((f"{kind}_median", f"{kind}_p90", f"{kind}_mean"), map(float, found)))
            line += "{:>17.1f} %{:>6.1f}{:>7.1f}".format(*(100 * np.array(found)))
        results.add(
            {"model": name, **summary, "selections": rows, "activation_cache": profile.cache.to_json()}
        )
        print(line, flush=True)


if __name__ == "__main__":
    main()
