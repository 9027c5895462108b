"""Short training of MobileNetV2's last layers from a solved head: more epochs or more layers?

    python studies/short_training.py --weights path/to/mobilenet_v2.h5 --images path/to/cub100

All layers behind a cut train on activations that were computed once; what is before it is frozen, and so are
the statistics of batch norm. Prints for each cut, number of epochs, learning rate and seed the processor
seconds of an epoch, the accuracy on the test images, and the training loss of each epoch.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import tensorflow as tf

from elastictrainer.models.solved_head import solve
from elastictrainer.steps.rates import RateSchedule

CUTS = ["block_16_project_BN", "block_15_add", "block_13_project_BN", "block_12_add"]
BATCH, WARMUP, DECAY, MOMENTUM, DROPOUT = 4, 0.1, 5e-4, 0.9, 0.2


def activations(network, folder, size):
    """The outputs of `network` for the images of a folder of classes, and their labels."""
    files = [(str(f), k) for k, c in enumerate(sorted(folder.iterdir())) for f in sorted(c.iterdir())]
    compute = tf.function(lambda x: network(x, training=False))

    def image(path):
        pixels = tf.cast(tf.image.decode_jpeg(tf.io.read_file(path), 3), tf.float32)
        return tf.image.resize(pixels, (size, size), antialias=True) / 127.5 - 1

    parts = [
        [np.asarray(v, np.float16) for v in compute(tf.stack([image(f) for f, _ in files[at : at + 32]]))]
        for at in range(0, len(files), 32)
    ]
    return [np.concatenate(part) for part in zip(*parts)], np.array([label for _, label in files])


def behind(base, cut, classes):
    """The layers of `base` behind the layer `cut` as a model of its own, with a head."""
    names = [layer.name for layer in base.layers]
    made = {cut: tf.keras.Input(base.get_layer(cut).output.shape[1:])}
    for layer in base.layers[names.index(cut) + 1 :]:
        given = [made[t._keras_history[0].name] for t in tf.nest.flatten(layer.input)]
        own = type(layer).from_config(layer.get_config())
        frozen = {"training": False} if isinstance(own, tf.keras.layers.BatchNormalization) else {}
        made[layer.name] = own(given if len(given) > 1 else given[0], **frozen)
        own.set_weights(layer.get_weights())
    pooled = tf.keras.layers.GlobalAveragePooling2D()(made[names[-1]])
    outputs = tf.keras.layers.Dense(classes)(tf.keras.layers.Dropout(DROPOUT)(pooled))
    return tf.keras.Model(made[cut], outputs)


class Tail:
    """What trains behind a cut; each training starts from the same weights."""

    def __init__(self, model):
        self.model, self.start = model, model.get_weights()
        self.rate = tf.Variable(0.0)
        self.slots = [tf.Variable(tf.zeros_like(v)) for v in model.trainable_variables]
        self.step = tf.function(self._step)
        self.classes_of = tf.function(lambda x: tf.argmax(model(tf.cast(x, tf.float32), training=False), -1))

    def _step(self, x, y):
        variables = self.model.trainable_variables
        with tf.GradientTape() as tape:
            logits = self.model(tf.cast(x, tf.float32), training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))
        for v, slot, gradient in zip(variables, self.slots, tape.gradient(loss, variables)):
            slot.assign(MOMENTUM * slot - self.rate * gradient)
            v.assign_add(slot - self.rate * DECAY * v)
        return loss

    def train(self, x, y, epochs, rate, seed):
        """Train; returns the mean loss of each epoch."""
        tf.keras.utils.set_random_seed(seed)
        self.model.set_weights(self.start)
        for slot in self.slots:
            slot.assign(tf.zeros_like(slot))
        schedule, order, steps = (
            RateSchedule(rate, "cosine", WARMUP),
            np.random.default_rng(seed),
            len(x) // BATCH,
        )
        losses = []
        for epoch in range(epochs):
            shuffled, loss = order.permutation(len(x)), 0.0
            for k in range(steps):
                self.rate.assign(schedule.rate((epoch * steps + k) / (epochs * steps)))
                chosen = shuffled[BATCH * k : BATCH * (k + 1)]
                loss += float(self.step(x[chosen], y[chosen]))
            losses.append(round(loss / steps, 3))
        return losses

    def accuracy(self, x, y):
        found = [np.asarray(self.classes_of(x[at : at + 100])) for at in range(0, len(x), 100)]
        return float((np.concatenate(found) == y).mean())


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--weights", required=True, help="of MobileNetV2 without its top")
    parser.add_argument("--images", required=True, type=Path, help="a folder with the parts train and test")
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--cuts", nargs="+", default=CUTS, choices=CUTS)
    parser.add_argument("--epochs", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--rates", type=float, nargs="+", default=[5e-5, 1e-4, 2e-4])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    given = parser.parse_args()
    shape = (given.size, given.size, 3)
    base = tf.keras.applications.MobileNetV2(input_shape=shape, include_top=False, weights=given.weights)
    outputs = [base.get_layer(cut).output for cut in given.cuts]
    network = tf.keras.Model(base.input, [*outputs, base.output])
    (*train, last), y = activations(network, given.images / "train", given.size)
    (*test, last_test), y_test = activations(network, given.images / "test", given.size)
    classes = int(y.max()) + 1
    kernel, bias, _ = solve(last.mean(axis=(1, 2), dtype=np.float32), np.eye(classes, dtype=np.float32)[y])
    logits = last_test.mean(axis=(1, 2), dtype=np.float32) @ kernel + bias
    print(f"solved head: {100 * (logits.argmax(axis=1) == y_test).mean():.1f} %", flush=True)
    for cut, x, x_test in zip(given.cuts, train, test):
        model = behind(base, cut, classes)
        model.layers[-1].set_weights([kernel, bias])
        tail = Tail(model)
        for seed in given.seeds:
            for epochs in given.epochs:
                for rate in given.rates:
                    began = time.process_time()
                    losses = tail.train(x, y, epochs, rate, seed)
                    each_s, accuracy = (time.process_time() - began) / epochs, tail.accuracy(x_test, y_test)
                    said = f"{cut}, {epochs} epochs at {rate:g}, seed {seed}: {each_s:.1f} s each"
                    print(f"{said}, {100 * accuracy:.1f} %, losses {losses}", flush=True)


if __name__ == "__main__":
    main()
