"""A check that every network of `--model` is made, profiled, trained, saved and exported.

    python scripts/benchmarks/every_network.py --output networks.json
    python scripts/benchmarks/every_network.py efficientnetb0 convnexttiny

    python scripts/benchmarks/every_network.py --brief

Each in a new process, with random weights, at the smallest size that it takes (64 pixels at least), batch 2.
The times in the profiles are of no use: one traced step, nothing calibrated. With --brief each is only made
and trained for two steps, all in one process.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from elastictrainer.registry import KERAS_NETWORKS
from elastictrainer.runs import environment
from elastictrainer.runs.files import write_json

_SMALLEST = 64  # pixels; below it the deepest networks have nothing left to pool
_MOST_S = 900


def tried(name: str, brief: bool) -> Dict[str, Any]:
    """Check a network; its errors are raised."""
    import numpy as np
    import tensorflow as tf

    from elastictrainer import profile_model
    from elastictrainer.experiment import assembly
    from elastictrainer.models import model_file, zoo
    from elastictrainer.models.export import export
    from elastictrainer.steps import optimizers
    from elastictrainer.steps.compiled_step import CompiledStep
    from elastictrainer.steps.objective import Objective, classification_loss

    assembly.configure(0)
    network = zoo.architecture(name)
    size = max(_SMALLEST, network.least_size)
    model = zoo.create(name, 5, size, "none", head_init="glorot")
    pixels, labels = tf.random.uniform((2, size, size, 3), 0, 255), tf.constant([0, 4])
    assert model.output_shape == (None, 5)
    optimizer = optimizers.make("sgd", 1e-3)
    optimizers.build(optimizer, model.trainable_weights)
    step = CompiledStep(Objective(model, classification_loss()), optimizer, model.trainable_weights)
    losses = [float(step(pixels, labels)) for _ in range(2)]
    assert np.isfinite(losses).all(), losses
    found = {
        "size": size,
        "default_size": network.image_size,
        "tensors": len(model.trainable_weights),
        "parameters": model.count_params(),
        "unconnected": sum(gradient is None for gradient in step.gradients),
    }
    if brief:
        return found
    timings = profile_model(
        model, classification_loss(), (pixels, labels), optimizer, warmup=1, steps=1, calibrate_s=0
    )
    expected = model(pixels, training=False).numpy()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "m.keras")
        model.save(file)
        np.testing.assert_allclose(model_file.read(file)(pixels, training=False), expected, atol=1e-4)
        export(model, list("abcde"), "tflite", Path(folder, "m.tflite"))
    return {**found, "estimated": int(timings.estimated.sum()), "coverage": timings.metadata["coverage"]}


def apart(name: str) -> Dict[str, Any]:
    """`tried` in a new process; what went wrong under "failed"."""
    try:
        command = [sys.executable, __file__, name, "--one"]
        run = subprocess.run(command, capture_output=True, text=True, timeout=_MOST_S)
    except subprocess.TimeoutExpired:
        return {"failed": f"takes more than {_MOST_S} s"}
    if run.returncode == 0:
        return dict(json.loads(run.stdout.splitlines()[-1]))
    return {"failed": (run.stderr.strip().splitlines() or [f"status {run.returncode}"])[-1]}


def here(name: str) -> Dict[str, Any]:
    """`tried` in brief in this process; what went wrong under "failed"."""
    import gc

    import tensorflow as tf

    try:
        return tried(name, brief=True)
    except Exception as error:  # whatever a network of Keras' raises
        return {"failed": f"{type(error).__name__}: {error}"}
    finally:
        tf.keras.backend.clear_session()
        gc.collect()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=list(KERAS_NETWORKS), help="default: all")
    parser.add_argument("--output", default="benchmark-output/networks.json")
    parser.add_argument("--brief", action="store_true", help="make them and train two steps, no more")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(tried(options.names[0], brief=False)))
        return
    rows = []
    for name in options.names:
        began = time.perf_counter()
        row = here(name) if options.brief else apart(name)
        rows.append({"name": name, **row, "seconds": round(time.perf_counter() - began, 1)})
        print(json.dumps(rows[-1]), flush=True)
        write_json(options.output, {"rows": rows, **environment.describe()})
    failed = [row["name"] for row in rows if "failed" in row]
    print(f"{len(rows) - len(failed)} of {len(rows)} networks work; failed: {', '.join(failed) or 'none'}")


if __name__ == "__main__":
    main()
