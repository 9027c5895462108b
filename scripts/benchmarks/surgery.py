r"""What cutting steps out of the full step's graph gains over tracing them, in seconds of the processor.

    python scripts/benchmarks/surgery.py [--subclassed]

For MobileNetV2 of random weights at 224x224, or a subclassed model around it, with AdamW.
"""

import argparse
import functools
import os
import time


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--subclassed", action="store_true")
    options = parser.parse_args()
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
    measured = Measured(options.subclassed)
    measured.tracing()
    measured.gradients()


class Measured:
    """A model with a traced full step."""

    def __init__(self, subclassed):
        import tensorflow as tf

        from elastictrainer import Objective
        from elastictrainer.steps import optimizers
        from elastictrainer.steps.compiled_step import CompiledStep
        from elastictrainer.steps.objective import classification_loss

        self.model = _subclassed(tf) if subclassed else _functional(tf)
        self.variables = self.model.trainable_variables
        self.optimizer = optimizers.make("adamw", 3e-4)
        optimizers.prepare_freezing(self.optimizer, self.variables)
        self.objective = Objective(self.model, classification_loss())
        self.spec = tf.TensorSpec((None, 224, 224, 3)), tf.TensorSpec((None,), tf.int64)
        self.full = CompiledStep(self.objective, self.optimizer, self.variables)
        self.full.trace(*self.spec)

    def step(self, first, full=None):
        """The step of the tensors from number `first` on."""
        from elastictrainer.steps.compiled_step import CompiledStep

        return CompiledStep(self.objective, self.optimizer, self.variables[first:], full=full)

    def tracing(self):
        for share in (0.25, 0.5, 0.75):
            first = int(share * len(self.variables))
            cut, traced = (
                seconds(functools.partial(self.step(first, full).trace, *self.spec))
                for full in (self.full, None)
            )
            print(f"step of the tensors above {share:g}: cut {cut:.2f} s, traced {traced:.2f} s", flush=True)

    def gradients(self):
        import tensorflow as tf

        def cut(x, y):
            return self.full.cutter().gradients(x, y)

        def traced(x, y):
            return self.objective.gradients(x, y, self.variables)[2]

        cut_s, traced_s = (
            seconds(lambda made=made: tf.function(made, autograph=False).get_concrete_function(*self.spec))
            for made in (cut, traced)
        )
        print(f"gradients: cut {cut_s:.2f} s, traced {traced_s:.2f} s", flush=True)


def _functional(tf):
    from elastictrainer.models import zoo

    return zoo.create("mobilenetv2", 100, weights="none")


def _subclassed(tf):
    class Subclassed(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.base = tf.keras.applications.MobileNetV2(
                weights=None, include_top=False, input_shape=(224, 224, 3), pooling="avg"
            )
            self.head = tf.keras.layers.Dense(100)

        def call(self, x, training=False):
            return self.head(self.base(x / 127.5 - 1, training=False))

    model = Subclassed()
    model(tf.zeros((1, 224, 224, 3)))
    return model


def seconds(run):
    """Processor seconds of a call."""
    began = time.process_time()
    run()
    return time.process_time() - began


if __name__ == "__main__":
    main()
