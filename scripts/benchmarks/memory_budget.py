"""The memory of a step, predicted against measured.

    python scripts/benchmarks/memory_budget.py --images path/to/images --weights path/to/mobilenet_v2.h5

For each model five selections, each in a process of its own: the peak of resident memory of six steps
above that of the process with model and optimizer, against the prediction of a profile from another process.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

import bench
from elastictrainer import Profile, profile_model, select
from elastictrainer.runs import resident
from elastictrainer.runs.files import write_json

_HERE = Path(__file__).parent
_STEPS = 6
SELECTIONS = (
    "full",
    "0.75",
    "0.5",
    "0.25",
    "random",
)  # shares: on the way from the cheapest step to the full one
# The last two are below: networks that no code of the package knows.
MODELS = ("mobilenetv2", "resnet50", "vgg16", "vit", "memory_budget:joining", "memory_budget:gated")


def joining():
    """A network of 20 convolutions, each of which reads the outputs of several before it."""
    import tensorflow as tf

    layers = tf.keras.layers
    inputs = tf.keras.Input((128, 128, 3))
    x = layers.Conv2D(24, 3, strides=2, padding="same", activation="relu")(layers.Rescaling(1 / 255)(inputs))
    for _ in range(4):
        for _ in range(5):
            new = layers.Conv2D(12, 3, padding="same", activation="relu")(layers.BatchNormalization()(x))
            x = layers.Concatenate()([x, new])
        x = layers.AveragePooling2D()(layers.Conv2D(32, 1, activation="relu")(x))
    return tf.keras.Model(inputs, layers.Dense(12)(layers.GlobalAveragePooling2D()(x)))


def gated():
    """A network with swish, depthwise convolutions and gates over channels."""
    import tensorflow as tf

    layers = tf.keras.layers
    inputs = tf.keras.Input((128, 128, 3))
    x = layers.Conv2D(32, 3, strides=2, padding="same")(layers.Rescaling(1 / 255)(inputs))
    for width in (32, 32, 64, 64, 128, 128):
        y = layers.DepthwiseConv2D(3, padding="same")(
            layers.Activation("swish")(layers.LayerNormalization()(x))
        )
        gate = layers.Dense(y.shape[-1], activation="sigmoid")(layers.GlobalAveragePooling2D()(y))
        y = layers.Multiply()([y, layers.Reshape((1, 1, -1))(gate)])
        if width != x.shape[-1]:
            x, y = layers.MaxPooling2D()(layers.Conv2D(width, 1)(x)), layers.MaxPooling2D()(y)
        x = layers.Add()([x, layers.Conv2D(width, 1)(y)])
    return tf.keras.Model(inputs, layers.Dense(12)(layers.GlobalAveragePooling2D()(x)))


def _made(name: str, options: Any) -> Any:
    """Model, objective, optimizer, metrics and a minibatch, as et-train has them."""
    import tensorflow as tf

    from elastictrainer.experiment import assembly
    from elastictrainer.experiment.settings import TrainSettings
    from elastictrainer.steps import optimizers
    from elastictrainer.steps.objective import Objective, classification_loss

    assembly.configure(0)
    settings = TrainSettings(
        model=name,
        dataset=options.images,
        weights=options.weights if name == "mobilenetv2" else "none" if ":" not in name else "imagenet",
        batch_size=options.batch_size,
        optimizer="adam" if name == "vit" else "sgd",
    )
    data = assembly.load_data(settings)
    model = assembly.make_model(settings, len(data.class_names))
    optimizer = assembly.make_optimizer(settings)
    optimizers.build(optimizer, model.trainable_variables)
    size = assembly.image_size(settings, model)
    batch = (
        tf.random.uniform((options.batch_size, *size, 3), 0, 255),
        tf.random.uniform((options.batch_size,), 0, len(data.class_names), tf.int64),
    )
    metrics = (tf.keras.metrics.SparseCategoricalAccuracy(),)
    return model, Objective(model, classification_loss()), optimizer, metrics, batch


def profiled(name: str, options: Any) -> Dict[str, Any]:
    """Profile a model in this process: its memory exactly, its times roughly."""
    _, objective, optimizer, metrics, batch = _made(name, options)
    profile = profile_model(
        objective.model, objective, batch, optimizer, metrics=metrics, warmup_steps=1, steps=2, calibrate_s=0
    )
    return profile.to_json()


def chosen(profile: Profile, which: str) -> np.ndarray:
    """(N,) bool: a selection of random importances; see SELECTIONS."""
    random, memory = np.random.default_rng(0), profile.memory
    if which == "full":
        return profile.connected
    if which == "random":
        return profile.connected & (random.random(len(profile)) < 0.3)
    least, most = memory.alone[profile.connected].min(), memory.step_bytes(profile.connected)
    limit = memory.loaded + least + float(which) * (most - least)
    return select(profile, random.lognormal(0, 2, len(profile)), 1.0, memory=limit).mask


def peak(name: str, options: Any) -> Dict[str, Any]:
    """Bytes that a few steps of a selection take in this process, and the prediction."""
    from elastictrainer.steps.compiled_step import CompiledStep

    profile = Profile.from_json(json.loads(Path(options.profile).read_text())["result"])
    mask = chosen(profile, options.selection)
    model, objective, optimizer, metrics, batch = _made(name, options)
    before = resident.settled_bytes()
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here on
    step = CompiledStep(
        objective, optimizer, [v for v, m in zip(model.trainable_variables, mask) if m], metrics
    )
    for _ in range(_STEPS):
        float(step(*batch))
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    above = 1024 * int(status["VmHWM"].split()[0]) - before
    predicted = profile.memory.step_bytes(mask)
    return {"tensors": int(mask.sum()), "before": before, "measured": above, "predicted": predicted}


def predictions(options: Any) -> List[Dict[str, Any]]:
    """The table of predicted and measured peaks."""
    rows = []
    part = Path(options.output).with_suffix(".part")
    print(f"{'model':<24}{'selection':>10}{'tensors':>9}{'measured MB':>13}{'predicted MB':>14}{'error':>8}")

    def here(name: str, *extra: str) -> Any:
        shared = ["--images", options.images, "--weights", options.weights, "--output", str(part)]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(_HERE), os.environ.get("PYTHONPATH", "")]),
        }
        subprocess.run([sys.executable, __file__, name, *shared, *extra], check=True, env=environment)
        return json.loads(part.read_text())["result"]

    for name in options.models:
        made = Path(options.output).with_suffix(f".{name.replace(':', '-')}.profile.json")
        write_json(made, {"result": here(name, "--here", "profile")})
        for which in SELECTIONS:
            found = here(name, "--here", "peak", "--selection", which, "--profile", str(made))
            error = found["predicted"] / found["measured"] - 1
            rows.append({"model": name, "selection": which, **found, "error": error})
            print(
                f"{name:<24}{which:>10}{found['tensors']:>9}{found['measured'] / 1e6:>13.0f}"
                f"{found['predicted'] / 1e6:>14.0f}{error:>+8.1%}",
                flush=True,
            )
            write_json(options.output, {"rows": rows})
    return rows


def main() -> None:
    parser = bench.parser(__doc__, "memory_budget.json", MODELS)
    parser.add_argument("--here", choices=("profile", "peak"), help="measure in this process")
    parser.add_argument("--selection", choices=SELECTIONS, help="what --here trains")
    parser.add_argument("--profile", help="the profile that --here predicts by")
    options = parser.parse_args()
    if options.here:
        resident.give_back_freed_memory()
        result = (profiled if options.here == "profile" else peak)(options.models[0], options)
        write_json(options.output, {"result": result})
        return
    rows = predictions(options)
    write_json(options.output, {"rows": rows, "options": vars(options), **bench.environment.describe()})


if __name__ == "__main__":
    main()
