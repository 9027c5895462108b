"""Steps that record and steps that replay: predicted against measured, each in turn with the full step.

    python scripts/benchmarks/reuse.py mobilenetv2 resnet50 gru vgg16 demo
    python scripts/benchmarks/reuse.py mobilenetv2 --runs runs/mine    # what these runs of the model selected

Selections are random: a random depth, and a random share of the tensors above it. The ratio of a replayed
step to a full one is held against the profile's. Goal: errors of replayed steps with a median of 4 % at most,
and nine in ten below 10 %; medians of three passes. Positive: predicted too long.
"""

import itertools
import time
from typing import Any, Callable, Dict, List, Tuple

import numpy as np

import bench
from elastictrainer.profiler.capture import SETTLED, warm_up
from elastictrainer.profiler.validation import random_masks
from elastictrainer.reuse.settings import ReuseSettings
from elastictrainer.runs.run_folder import RunFolder

PASSES, STEPS, SELECTIONS = 3, 12, 12
MODELS = ("mobilenetv2", "resnet50", "gru", "vgg16", "demo")
LONGEST_WARM_UP_S = 5.0
KINDS = ("whole", "recording", "replay")


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
    """Steps, optimizer, profile with the costs of reuse, and minibatches of a model."""
    from elastictrainer import profile_model
    from elastictrainer.experiment import assembly
    from elastictrainer.reuse.costs import with_reuse_costs
    from elastictrainer.steps import optimizers
    from elastictrainer.steps.compiled_step import StepCache
    from elastictrainer.steps.objective import Objective, classification_loss

    if name == "gru":
        assembly.configure(0)
        model, minibatch = gru(16)
        optimizer = optimizers.make("sgd")
        optimizers.build(optimizer, model.trainable_variables)
        objective = Objective(model, classification_loss())
        timings = profile_model(model, objective, minibatch(), optimizer)
        made = {"minibatches": iter(minibatch, None), "steps": StepCache(objective, optimizer)}
    else:
        ready = bench.prepare(name, options, warm=4)
        objective, optimizer, timings = ready.objective, ready.optimizer, ready.timings
        made = {"minibatches": ready.minibatches(), "steps": ready.steps}
    batch = next(made["minibatches"])
    return {**made, "batch": batch, "timings": with_reuse_costs(timings, objective, optimizer, batch)}


def selections_of(folders: List[str], tensors: int) -> List[np.ndarray]:
    """What the runs in these folders selected, as masks."""
    masks = []
    for folder in folders:
        for record in RunFolder(folder).selections():
            mask = np.zeros(tensors, bool)
            mask[record["selected"]] = True
            masks.append(mask)
    return masks


def times_ms(run: Callable[[], Any], count: int) -> np.ndarray:
    times = []
    for _ in range(count):
        start = time.perf_counter()
        float(run())
        times.append(1e3 * (time.perf_counter() - start))
    return np.array(times)


def settle(run: Callable[[], Any]) -> None:
    """As `capture.warm_up`, for a step in two parts."""
    start = time.perf_counter()
    for _ in range(SETTLED):
        float(run())
        if time.perf_counter() - start > LONGEST_WARM_UP_S:
            return


def measured(ready: Dict[str, Any], mask: np.ndarray) -> Dict[str, Any]:
    """Ratios of the steps of a selection to a full step, each kind timed in turn."""
    import tensorflow as tf

    from elastictrainer.reuse.frozen_work import FrozenWork, Unusable
    from elastictrainer.steps.compiled_step import CompiledStep

    steps, batch, timings = ready["steps"], ready["batch"], ready["timings"]
    variables = [v for v, chosen in zip(steps.objective.model.trainable_variables, mask) if chosen]
    step = CompiledStep(steps.objective, steps.optimizer, variables, steps.metrics)
    spec = tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), batch)
    size = len(tf.nest.flatten(batch[0])[0])
    capacity = size * (PASSES * STEPS + SETTLED)
    try:
        work = FrozenWork(step, batch, spec, capacity, ReuseSettings(), timings)
    except Unusable as error:
        return {"selected": int(mask.sum()), "unusable": str(error)}
    full, whole = steps.get(timings.connected), steps.get(mask)
    settle(lambda: work.train(work.keep(batch)))
    epochs, places = itertools.count(), itertools.count()
    settle(lambda: work.train(work.read(0, next(places))))
    warm_up(full, batch)
    warm_up(whole, batch)
    ratios: Dict[str, List[float]] = {"whole": [], "recording": [], "replay": []}
    for _ in range(PASSES):
        full_ms = np.median(times_ms(lambda: full(*batch), STEPS))
        whole_ms = np.median(times_ms(lambda: whole(*batch), STEPS)[1:])
        recording_ms = np.median(times_ms(lambda: work.train(work.keep(batch)), STEPS)[1:])
        epoch = next(epochs)
        places = itertools.count()
        replay_ms = np.median(times_ms(lambda: work.train(work.read(epoch, next(places))), STEPS)[1:])  # noqa: B023
        full_ms = (full_ms + np.median(times_ms(lambda: full(*batch), STEPS))) / 2
        ratios["whole"].append(whole_ms / full_ms)
        ratios["recording"].append(recording_ms / full_ms)
        ratios["replay"].append(replay_ms / full_ms)
    row = {
        "selected": int(mask.sum()),
        "mb": 1e-6 * work.recording.bytes / capacity * size,
        **{kind: float(np.median(found)) for kind, found in ratios.items()},
        "whole_predicted": timings.step_time(mask) / timings.full_ms,
        "recording_predicted": timings.recording_time(mask) / timings.full_ms,
        "replay_predicted": timings.replay_time(mask) / timings.full_ms,
    }
    work.close()
    return row


def main() -> None:
    parser = bench.parser(__doc__, "benchmark-output/reuse.json", MODELS)
    parser.add_argument("--runs", nargs="+", metavar="RUN", help="folders of runs of the one model given")
    options = parser.parse_args()
    results = bench.Results(options)
    print(
        f"{'model':<14}{'selections':>11}"
        + "".join(f"{kind + ': median':>19}{'p90':>6}{'mean':>7}" for kind in KINDS)
    )
    for name in options.models:
        ready = prepared(name, options)
        timings = ready["timings"]
        masks = (
            selections_of(options.runs, len(timings))
            if options.runs
            else random_masks(timings, SELECTIONS, seed=0)
        )
        rows = [measured(ready, mask) for mask in masks]
        usable = [row for row in rows if "replay" in row]
        line = f"{name:<14}{f'{len(usable)}/{len(rows)}':>11}"
        summary = {}
        for kind in KINDS:
            error = np.array([row[f"{kind}_predicted"] / row[kind] - 1 for row in usable])
            size = np.abs(error)
            found = np.median(size), np.quantile(size, 0.9), error.mean()
            summary.update(zip((f"{kind}_median", f"{kind}_p90", f"{kind}_mean"), map(float, found)))
            line += "{:>17.1f} %{:>6.1f}{:>7.1f}".format(*(100 * np.array(found)))
        results.add({"model": name, **summary, "selections": rows})
        print(line, flush=True)


if __name__ == "__main__":
    main()
