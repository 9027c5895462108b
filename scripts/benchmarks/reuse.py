"""Steps that record and steps that replay: predicted against measured, each in turn with the full step.

    python scripts/benchmarks/reuse.py mobilenetv2 resnet50 gru vgg16 nasnet

Selections are random: a random depth, and a random share of the tensors above it. The ratio of a replayed
step to a full one is held against the profile's. Goal: errors of replayed steps with a median of 4 % at most,
and nine in ten below 10 %; medians of three passes.
"""

import itertools
import time
from typing import Any, Callable, Dict, List, Tuple

import numpy as np

import bench
from elastictrainer.profiler.validation import random_masks
from elastictrainer.reuse.settings import ReuseSettings

PASSES, STEPS, SELECTIONS = 3, 12, 12
MODELS = ("mobilenetv2", "resnet50", "gru", "vgg16", "demo")


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


def times_ms(run: Callable[[], Any], count: int) -> np.ndarray:
    times = []
    for _ in range(count):
        start = time.perf_counter()
        float(run())
        times.append(1e3 * (time.perf_counter() - start))
    return np.array(times)


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
    capacity = size * (PASSES * STEPS + 8)
    try:
        work = FrozenWork(step, batch, spec, capacity, ReuseSettings(), timings)
    except Unusable as error:
        return {"selected": int(mask.sum()), "unusable": str(error)}
    full = steps.get(timings.connected)
    for _ in range(4):
        work.train(work.keep(batch))
    epochs = itertools.count()
    for k in range(4):
        work.train(work.read(0, k))
        full(*batch)
    ratios: Dict[str, List[float]] = {"recording": [], "replay": []}
    for _ in range(PASSES):
        full_ms = np.median(times_ms(lambda: full(*batch), STEPS))
        recording_ms = np.median(times_ms(lambda: work.train(work.keep(batch)), STEPS)[1:])
        epoch = next(epochs)
        places = itertools.count()
        replay_ms = np.median(times_ms(lambda: work.train(work.read(epoch, next(places))), STEPS)[1:])  # noqa: B023
        full_ms = (full_ms + np.median(times_ms(lambda: full(*batch), STEPS))) / 2
        ratios["recording"].append(recording_ms / full_ms)
        ratios["replay"].append(replay_ms / full_ms)
    row = {
        "selected": int(mask.sum()),
        "mb": 1e-6 * work.recording.bytes / capacity * size,
        "replay": float(np.median(ratios["replay"])),
        "replay_predicted": timings.replay_time(mask) / timings.full_ms,
        "recording": float(np.median(ratios["recording"])),
        "recording_predicted": timings.recording_time(mask) / timings.full_ms,
        "plain_predicted": timings.step_time(mask) / timings.full_ms,
    }
    work.close()
    return row


def main() -> None:
    options = bench.parser(__doc__, "benchmark-output/reuse.json", MODELS).parse_args()
    results = bench.Results(options)
    print("model          selections  replay: median    p90  recording: median    p90")
    for name in options.models:
        ready = prepared(name, options)
        rows = [measured(ready, mask) for mask in random_masks(ready["timings"], SELECTIONS, seed=0)]
        usable = [row for row in rows if "replay" in row]
        errors = {
            kind: np.array([row[f"{kind}_predicted"] / row[kind] - 1 for row in usable])
            for kind in ("replay", "recording")
        }
        summary = {
            f"{kind}_{what}": float(function(np.abs(error)))
            for kind, error in errors.items()
            for what, function in {"median": np.median, "p90": lambda e: np.quantile(e, 0.9)}.items()
        }
        results.add({"model": name, **summary, "selections": rows})
        print(
            f"{name:14} {len(usable):>6}/{len(rows):<3} {100 * summary['replay_median']:13.1f} % "
            f"{100 * summary['replay_p90']:4.1f} % {100 * summary['recording_median']:16.1f} % "
            f"{100 * summary['recording_p90']:4.1f} %",
            flush=True,
        )


if __name__ == "__main__":
    main()
