"""Full training by Trainer.fit against Keras' Model.fit: same model, data, optimizer and metrics.

    python scripts/benchmarks/throughput.py --images path/to/images --output throughput.json

The second epoch of fits of two, both in turn in one process, from the same weights and on the same input
pipeline; the first fit of each is left out. Trainer.fit has the callbacks of et-train, run folder and checks
included; validation in neither. Target: 0.98 of Keras' throughput.
"""

import tempfile
import time
from pathlib import Path

import numpy as np

import bench
from elastictrainer import Trainer
from elastictrainer.runs.run_folder import RunFolder
from elastictrainer.steps import optimizers
from elastictrainer.steps.objective import classification_loss
from elastictrainer.training.checkpoints import Checkpointing
from elastictrainer.training.energy import EnergyMetering
from elastictrainer.training.record import RunRecord


def measure(made: bench.Bench, steps: int, rounds: int) -> dict:
    import tensorflow as tf

    weights = made.model.get_weights()
    how_long = {"epochs": 2, "steps_per_epoch": steps, "verbose": 0}

    def compiled() -> None:
        made.model.set_weights(weights)
        optimizer = optimizers.make("adam" if made.name == "vit" else "sgd")
        accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")
        made.model.compile(optimizer, classification_loss(), metrics=[accuracy], jit_compile=False)

    def ours() -> float:
        compiled()
        with tempfile.TemporaryDirectory() as folder:
            run = RunFolder(Path(folder, "run"))
            with run.claimed():
                callbacks = [EnergyMetering(), RunRecord(run, quiet=True), Checkpointing(run)]
                trainer = Trainer(made.model, scheme="full")
                trainer.fit(made.data.stream, callbacks=callbacks, **how_long)
                return run.metrics()[1]["train_seconds"]

    def keras() -> float:
        compiled()
        begun, done = [], []
        clock = tf.keras.callbacks.LambdaCallback(
            on_epoch_begin=lambda epoch, logs: begun.append(time.perf_counter()),
            on_epoch_end=lambda epoch, logs: done.append(time.perf_counter()),
        )
        made.model.fit(made.data.stream(), callbacks=[clock], **how_long)
        return done[1] - begun[1]

    ours(), keras()
    ratios = bench.undisturbed(lambda: keras() / ours(), rounds)
    return {
        "model": made.name,
        "steps": steps,
        "throughput_ratio": float(np.median(ratios)),
        "least": min(ratios),
        "most": max(ratios),
        "step_ms": 1e3 * ours() / steps,
    }


def main() -> None:
    parser = bench.parser(__doc__, "throughput.json", ["mobilenetv2", "resnet50"])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    columns = {
        "model": "<13",
        "step_ms": ">9.1f",
        "least": ">8.3f",
        "throughput_ratio": ">18.3f",
        "most": ">8.3f",
    }
    results = bench.Results(options, columns)
    for name in options.models:
        results.add(measure(bench.prepare(name, options), options.steps, options.rounds))


if __name__ == "__main__":
    main()
