"""One training step: Keras' own, ours, and ours with batch norms folded; and the forward pass.

    taskset -c 0 python scripts/benchmarks/step.py mobilenetv2 resnet50 efficientnetb0 --batch-size 16

All in turn in one process, from the same weights, on one minibatch; SGD, metrics updated. Times are CPU time
of an image in ms, medians over rounds; ratios are medians of a round's. Memory is what a step's graph is
reckoned to take above weights and slots.
"""

import time

import numpy as np

import bench
from elastictrainer.profiler.profile_model import traced_memory
from elastictrainer.steps import optimizers
from elastictrainer.steps.compiled_step import CompiledStep
from elastictrainer.steps.objective import Objective, classification_loss

KERAS, PLAIN, FOLDED = "Keras", "ours", "folded"


def variants(name, batch_size):
    """Return the functions to time by name: steps, then forward passes; and MB of a step by name."""
    import tensorflow as tf

    from elastictrainer.experiment import assembly
    from elastictrainer.models import zoo

    assembly.configure(0)
    size = zoo.default_image_size(name)
    model = zoo.create(name, 100, image_size=size, weights="none", head_init="glorot", augment="none")
    x = tf.random.uniform((batch_size, size, size, 3), 0, 255)
    y = tf.random.uniform((batch_size,), 0, 100, tf.int64)
    accuracy = tf.keras.metrics.SparseCategoricalAccuracy()
    model.compile(optimizers.make("sgd", 1e-6), classification_loss(), metrics=[accuracy], jit_compile=False)
    model.make_train_function()
    data = tf.data.Dataset.from_tensors((x, y)).cache().repeat()
    minibatches = iter(data)
    found, memory = {f"{KERAS} step": lambda: model.train_function(minibatches)}, {}
    for kind, fold in ((PLAIN, False), (FOLDED, True)):
        objective = Objective(model, classification_loss(), fold=fold)
        optimizer = optimizers.make("sgd", 1e-6)
        optimizers.build(optimizer, model.trainable_variables)
        step = CompiledStep(objective, optimizer, model.trainable_variables, [accuracy])
        reckoned = traced_memory(step, (x, y))
        memory[kind] = 1e-6 * reckoned.step_bytes(np.ones(len(step.variables), bool)) if reckoned else None
        found[f"{kind} step"] = lambda step=step: float(step(x, y))
        forward = tf.function(lambda x, y, objective=objective: objective(x, y, False)[1])
        found[f"{kind} forward"] = lambda forward=forward: float(forward(x, y))
    return found, memory


def measure(name, batch_size, rounds):
    """Return the row of a network."""
    found, memory = variants(name, batch_size)
    taken = {kind: [] for kind in found}
    for number in range(rounds + 2):
        for kind, run in found.items():
            began = time.process_time()
            run()
            if number >= 2:  # the first ones build graphs and warm up
                taken[kind].append(1e3 * (time.process_time() - began) / batch_size)
    row = {"model": name, "batch": batch_size}
    row.update((kind, float(np.median(values))) for kind, values in taken.items())
    for kind in (PLAIN, FOLDED):
        over = np.divide(taken[f"{kind} step"], taken[f"{KERAS} step"])
        row.update({f"{kind}/{KERAS}": float(np.median(over)), f"{kind} MB": memory[kind]})
    return row


def main():
    parser = bench.parser(
        __doc__, "benchmark-output/step.json", ["mobilenetv2", "resnet50", "efficientnetb0"]
    )
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    times = [f"{KERAS} step", *(f"{kind} {part}" for kind in (PLAIN, FOLDED) for part in ("step", "forward"))]
    columns = {"model": "<15", "batch": ">5", **dict.fromkeys(times, ">16.1f")}
    ratios = {f"{kind}/{KERAS}": ">14.2f" for kind in (PLAIN, FOLDED)}
    results = bench.Results(options, {**columns, **ratios, "ours MB": ">10.0f", "folded MB": ">10.0f"})
    for name in options.models:
        results.add(measure(name, options.batch_size, options.rounds))


if __name__ == "__main__":
    main()
