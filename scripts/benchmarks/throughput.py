"""Full training in this program's loop against Keras' Model.fit: same model, data, optimizer and metrics.

    python scripts/benchmarks/throughput.py --images path/to/images --output throughput.json

Epochs of both in turn in one process, the first of each left out; every one starts from the same weights, on the same input
pipeline. The loop does what et-train does in a step, run folder and checks included; validation in neither. Target: 0.98
of Keras' throughput.
"""

import itertools
import os
import tempfile
import time
from pathlib import Path

import numpy as np

import bench
from elastictrainer.runs.run_folder import RunFolder
from elastictrainer.steps import optimizers
from elastictrainer.steps.objective import classification_loss
from elastictrainer.training.training import Training


class Part:
    """The first minibatches of each epoch, and hardly any test data."""

    def __init__(self, data, steps: int):
        self.data, self.steps_per_epoch = data, steps

    def train(self, epoch: int, first: int = 0):
        return itertools.islice(self.data.train(epoch, first), self.steps_per_epoch - first)

    def test(self):
        return itertools.islice(self.data.test(), 1)


def measure(made: bench.Bench, steps: int, rounds: int) -> dict:
    import tensorflow as tf

    data = Part(made.data, steps)
    keras_optimizer = optimizers.make("adam" if made.name == "vit" else "sgd", decay_steps=18_000)
    made.model.compile(
        keras_optimizer, classification_loss(), metrics=[tf.keras.metrics.SparseCategoricalAccuracy()]
    )
    weights = made.model.get_weights()

    def ours() -> float:
        made.model.set_weights(weights)
        with tempfile.TemporaryDirectory() as folder:
            run = RunFolder(Path(folder, "run"))
            with run.claimed():
                trainer = Training(
                    made.model,
                    optimizers.make("adam" if made.name == "vit" else "sgd", decay_steps=18_000),
                    scheme="full",
                    epochs=2,
                    run=run,
                    quiet=True,
                )
                trainer.fit(data)
                return run.metrics()[1]["train_seconds"]

    examples = made.data.train_split.examples((0, 1), made.data.image_size, len(os.sched_getaffinity(0)))
    dataset = examples.batch(made.data.batch_size, drop_remainder=True).take(steps).prefetch(2)
    pipeline = tf.data.Options()
    pipeline.autotune.enabled = False
    dataset = dataset.with_options(pipeline)

    def keras() -> float:
        made.model.set_weights(weights)
        start = time.perf_counter()
        made.model.fit(dataset, verbose=0)
        return time.perf_counter() - start

    ours(), keras()
    ratio, ratios = bench.median_ratio(keras, ours, rounds)
    return {
        "model": made.name,
        "steps": steps,
        "throughput_ratio": ratio,
        "ratios": ratios,
        "step_ms": 1e3 * ours() / steps,
    }


def main() -> None:
    parser = bench.parser(__doc__, "throughput.json", ["mobilenetv2", "resnet50"])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    results = bench.Results(options)
    print(f"{'model':<13}{'step ms':>9}{'throughput over Keras fit':>27}   rounds")
    for name in options.models:
        row = measure(bench.prepare(name, options), options.steps, options.rounds)
        results.add(row)
        print(
            f"{name:<13}{row['step_ms']:>9.1f}{row['throughput_ratio']:>27.3f}   "
            + " ".join(f"{r:.3f}" for r in row["ratios"]),
            flush=True,
        )


if __name__ == "__main__":
    np.set_printoptions(precision=3)
    main()
