"""The cost of each `--augment` in a training step: its layers alone, next to a full step of MobileNetV2.

    python scripts/benchmarks/augmentation.py
    python scripts/benchmarks/augmentation.py --image-size 96 --batch-size 16

The fastest of many runs in turn counts: other work on the machine only adds time.
"""

import argparse
import os
import time
from typing import Any, Callable, Dict, List

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()

    import tensorflow as tf

    from elastictrainer.experiment import assembly
    from elastictrainer.models import augmentation, zoo
    from elastictrainer.steps import optimizers
    from elastictrainer.steps.compiled_step import CompiledStep
    from elastictrainer.steps.objective import Objective, classification_loss

    assembly.configure(0)
    shape = (options.batch_size, options.image_size, options.image_size, 3)
    pixels, labels = tf.random.uniform(shape, 0, 255), tf.zeros(options.batch_size, tf.int64)
    model = zoo.create("mobilenetv2", 10, options.image_size, "none", augment="none")
    optimizer = optimizers.make("sgd")
    optimizers.build(optimizer, model.trainable_weights)
    step = CompiledStep(Objective(model, classification_loss()), optimizer, model.trainable_weights)

    def alone(layers: List[Any]) -> Callable[[], Any]:
        @tf.function
        def augment(x: Any) -> Any:
            for layer in layers:
                x = layer(x, training=True)
            return x

        return lambda: augment(pixels).numpy()

    measured = {name: alone(augmentation.layers(preset)) for name, preset in augmentation.PRESETS.items()}
    measured["full step"] = lambda: step(pixels, labels).numpy()
    fastest: Dict[str, float] = dict.fromkeys(measured, float("inf"))
    for _ in range(options.rounds):
        for name, run in measured.items():
            began = time.perf_counter()
            run()
            fastest[name] = min(fastest[name], 1e3 * (time.perf_counter() - began))
    full = fastest.pop("full step")
    for name, ms in fastest.items():
        more = ms - fastest["none"]  # without what a call itself takes
        print(f"{name:10} {more:7.2f} ms  {100 * more / full:5.1f} % of a full step of {full:.1f} ms")


if __name__ == "__main__":
    main()
