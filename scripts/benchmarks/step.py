"""One training step: Keras' own, ours, ours with batch norms folded, that in bfloat16; and the forward pass.

    taskset -c 0 python scripts/benchmarks/step.py mobilenetv2 resnet50 efficientnetb0 --batch-size 16

All in turn in one process, from the same weights, on one minibatch; SGD, metrics updated. Times are CPU time
of an image in ms, medians over rounds; ratios are medians of a round's. Memory is what a step's graph is
reckoned to take above weights and slots.

With --cached the last half of the tensors trains on cached activations: the pass that writes the cache, and
the step that reads it, folded in the given batch over as they are in batches of 4.

With --parts what takes a folded step in float32 less time is added part by part; each part's share is of
Keras' step.

A processor without bfloat16 units computes in it as well, but slower: --precision auto leaves it there.
"""

import itertools
import time
from contextlib import ExitStack
from unittest import mock

import numpy as np

import bench
from elastictrainer.cache.activation_cache import ActivationCache
from elastictrainer.cache.forward_pass import ForwardPass
from elastictrainer.cache.settings import CacheSettings
from elastictrainer.profiler.profile_model import traced_memory
from elastictrainer.steps import compiled_step, folding, optimizers
from elastictrainer.steps.compiled_step import CompiledStep
from elastictrainer.steps.keras_compat.layers import keep_statistics
from elastictrainer.steps.objective import Objective, classification_loss

KERAS, PLAIN, FOLDED, ROUNDED = "Keras", "ours", "folded", "bfloat16"
KINDS = {PLAIN: (False, "float32"), FOLDED: (True, "float32"), ROUNDED: (True, "bfloat16")}  # ours
PARTS = ("norms", "order", "zero padding", "swish", "pointwise")  # of a folded step
_PLAIN_BATCH = 4  # of cached steps before they were folded
_WARM_UP = 2  # rounds that build graphs


def network(name, precision="float32"):
    from elastictrainer.experiment import assembly
    from elastictrainer.models import zoo

    assembly.configure(0, precision=precision)
    size = zoo.default_image_size(name)
    model = zoo.create(name, 100, image_size=size, weights="none", head_init="glorot", augment="none")
    keep_statistics(model)  # as in a run whose head is solved
    return model, size


def minibatch(size, batch_size):
    import tensorflow as tf

    x = tf.random.uniform((batch_size, size, size, 3), 0, 255)
    return x, tf.random.uniform((batch_size,), 0, 100, tf.int64)


def keras_step(name, batch_size):
    """Return a network, its metric, a minibatch, and Keras' step on it as a function."""
    import tensorflow as tf

    model, size = network(name)
    examples = minibatch(size, batch_size)
    accuracy = tf.keras.metrics.SparseCategoricalAccuracy()
    model.compile(optimizers.make("sgd", 1e-6), classification_loss(), metrics=[accuracy], jit_compile=False)
    model.make_train_function()
    minibatches = iter(tf.data.Dataset.from_tensors(examples).cache().repeat())
    return model, accuracy, examples, lambda: model.train_function(minibatches)


def own_step(model, accuracy, fold=True):
    objective, optimizer = Objective(model, classification_loss(), fold=fold), optimizers.make("sgd", 1e-6)
    optimizers.build(optimizer, model.trainable_variables)
    return CompiledStep(objective, optimizer, model.trainable_variables, [accuracy])


def variants(name, batch_size):
    """Return the functions to time by name: steps, then forward passes; and MB of a step by name."""
    import tensorflow as tf

    model, accuracy, examples, keras = keras_step(name, batch_size)
    found, memory = {f"{KERAS} step": keras}, {}
    for kind, (fold, precision) in KINDS.items():
        if precision != "float32":
            model, _ = network(name, precision)
        step = own_step(model, accuracy, fold)
        reckoned = traced_memory(step, examples)
        memory[kind] = 1e-6 * reckoned.step_bytes(np.ones(len(step.variables), bool)) if reckoned else None
        found[f"{kind} step"] = lambda step=step: float(step(*examples))
        forward = tf.function(lambda x, y, objective=step.objective: objective(x, y, False)[1])
        found[f"{kind} forward"] = lambda forward=forward: float(forward(*examples))
    return found, memory


def in_turn(found, rounds):
    """Run the functions in turn; return by name the CPU milliseconds (rounds,) of each."""
    taken = {kind: [] for kind in found}
    for number in range(rounds + _WARM_UP):
        for kind, run in found.items():
            began = time.process_time()
            run()
            if number >= _WARM_UP:
                taken[kind].append(1e3 * (time.process_time() - began))
    return {kind: np.array(values) for kind, values in taken.items()}


def measure(name, batch_size, rounds):
    """Return the row of a network."""
    found, memory = variants(name, batch_size)
    taken = {kind: values / batch_size for kind, values in in_turn(found, rounds).items()}
    row = {"model": name, "batch": batch_size}
    row.update((kind, float(np.median(values))) for kind, values in taken.items())
    for kind in KINDS:
        over = taken[f"{kind} step"] / taken[f"{KERAS} step"]
        row.update({f"{kind}/{KERAS}": float(np.median(over)), f"{kind} MB": memory[kind]})
    return row


def without():
    """Return by part a module, the name of a function in it, and one that leaves the part out."""
    import tensorflow as tf

    def as_convolution(x, kernel, bias):
        return folding._add_bias(tf.nn.conv2d(x, kernel[None, None], 1, "VALID"), bias)

    return {
        "order": (compiled_step, "one_by_one", lambda gradients, ends: None),
        "zero padding": (
            folding,
            "_unpadded",
            lambda layer, x, made: (x, getattr(layer, "padding", "").upper()),
        ),
        "swish": (folding, "_is_silu", lambda layer: False),
        "pointwise": (folding, "_pointwise", as_convolution),
    }


def measure_parts(name, batch_size, rounds):
    """Return the row of a network whose folded step gets its parts one after the other."""
    model, accuracy, examples, keras = keras_step(name, batch_size)
    found, left_out = {KERAS: keras}, without()
    for part in PARTS:
        left_out.pop(part, None)
        step = own_step(model, accuracy)
        with ExitStack() as stack:
            for module, function, replacement in left_out.values():
                stack.enter_context(mock.patch.object(module, function, replacement))
            step(*examples)
        found[part] = lambda step=step: float(step(*examples))
    taken = in_turn(found, rounds)
    shares = [1.0, *(float(np.median(taken[part] / taken[KERAS])) for part in PARTS)]
    row = {"model": name, "batch": batch_size, "step": shares[-1]}
    row.update((part, before - after) for part, before, after in zip(PARTS, shares, shares[1:]))
    return row


def cached_half(model, size, batch_size, fold, rounds):
    """Return the pass and the step, as functions, that train the last half of the tensors on a cache."""
    import tensorflow as tf

    objective = Objective(model, classification_loss(), fold=fold)
    optimizer = optimizers.make("sgd", 1e-6)
    optimizers.build(optimizer, model.trainable_variables)
    examples = minibatch(size, batch_size)
    half = model.trainable_variables[len(model.trainable_variables) // 2 :]
    cache = ActivationCache(
        CompiledStep(objective, optimizer, half),
        examples,
        tuple(tf.TensorSpec(part.shape, part.dtype) for part in examples),
        (rounds + _WARM_UP) * batch_size,
        CacheSettings(),
        ForwardPass(objective, optimizer, examples, None),
    )
    steps = itertools.count()
    return lambda: cache.write(examples), lambda: float(cache.train(cache.read(0, next(steps))))


def measure_cached(name, batch_size, rounds):
    """Return the row of a network whose last half trains on cached activations."""
    batches = {PLAIN: _PLAIN_BATCH, FOLDED: batch_size, ROUNDED: batch_size}
    made = {
        kind: cached_half(*network(name, precision), batches[kind], fold, rounds)
        for kind, (fold, precision) in KINDS.items()
    }
    row = {"model": name, "batch": batch_size}
    for number, part in enumerate(("pass", "cached step")):  # all passes: then the cache is whole
        taken = in_turn({kind: functions[number] for kind, functions in made.items()}, rounds)
        image = {kind: values / batches[kind] for kind, values in taken.items()}
        row.update((f"{kind} {part}", float(np.median(values))) for kind, values in image.items())
        for kind in (FOLDED, ROUNDED):
            row[f"{kind} {part} ratio"] = float(np.median(image[kind] / image[PLAIN]))
    return row


def main():
    parser = bench.parser(
        __doc__, "benchmark-output/step.json", ["mobilenetv2", "resnet50", "efficientnetb0"]
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--cached", action="store_true", help="the cache's pass and steps")
    parser.add_argument("--parts", action="store_true", help="what each part of folding brings")
    options = parser.parse_args()
    if options.parts:
        results = bench.Results(
            options, {"model": "<15", "batch": ">5", **dict.fromkeys(("step", *PARTS), ">13.3f")}
        )
        for name in options.models:
            results.add(measure_parts(name, options.batch_size, options.rounds))
        return
    if options.cached:
        parts = [f"{kind} {part}" for part in ("pass", "cached step") for kind in KINDS]
        ratios = [f"{kind} {part} ratio" for part in ("pass", "cached step") for kind in (FOLDED, ROUNDED)]
        columns = {**dict.fromkeys(parts, ">20.1f"), **dict.fromkeys(ratios, ">26.2f")}
        results = bench.Results(options, {"model": "<15", "batch": ">5", **columns})
        for name in options.models:
            results.add(measure_cached(name, options.batch_size, options.rounds))
        return
    times = [f"{KERAS} step", *(f"{kind} {part}" for kind in KINDS for part in ("step", "forward"))]
    columns = {"model": "<15", "batch": ">5", **dict.fromkeys(times, ">16.1f")}
    ratios = {f"{kind}/{KERAS}": ">15.2f" for kind in KINDS}
    memory = {f"{kind} MB": ">12.0f" for kind in KINDS}
    results = bench.Results(options, {**columns, **ratios, **memory})
    for name in options.models:
        results.add(measure(name, options.batch_size, options.rounds))


if __name__ == "__main__":
    main()
