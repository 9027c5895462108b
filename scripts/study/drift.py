r"""Drift: a network that has learned one thing goes on with another. What is gained, what is forgotten?

    SQUEEZENET_WEIGHTS=path/to/squeezenet.h5 PYTHONPATH=scripts/study python scripts/study/drift.py \
        --dataset path/to/flowers12 --model squeezenet:classifier --csv drift.csv

"classes": first half of the classes, then the other half. "looks": all classes, then the same images darker
and tinted red. The network trains on the first, all of it; from there on the second, by each scheme,
with and without a small set of images of the first among the new ones. A row of the CSV file is a run: test
accuracy in per cent on the old and on the new, before and after. `forgotten` is what was lost on the old.
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from elastictrainer.runs.files import write_csv

SCHEMES = {
    "full": {"scheme": "full"},
    "elastic": {"scheme": "elastic", "rho": 0.5},
    "freeze-below": {"scheme": "freeze-below", "rho": 0.5},
}
DARKER, TINT = 0.6, (1.0, 0.75, 0.6)  # factors of all values, and of red, green and blue


def read(folder, size):
    """(n, size, size, 3) images in 0..255 and (n,) labels, in one order."""
    import tensorflow as tf

    data = tf.keras.utils.image_dataset_from_directory(
        folder, batch_size=None, image_size=(size, size), shuffle=False
    )
    images, labels = zip(*data)
    return np.stack([image.numpy().astype(np.uint8) for image in images]), np.array(labels, np.int64)


def of_classes(part, classes):
    images, labels = part
    chosen = np.isin(labels, classes)
    return images[chosen], labels[chosen]


def looking_different(part):
    images, labels = part
    return np.rint(images * (DARKER * np.array(TINT))).astype(np.uint8), labels


def drifts(train, test):
    """By name: (old train, old test, new train, new test)."""
    classes = np.unique(train[1])
    first, second = classes[: len(classes) // 2], classes[len(classes) // 2 :]
    parts = [of_classes(part, half) for half in (first, second) for part in (train, test)]
    return {"classes": parts, "looks": [train, test, looking_different(train), looking_different(test)]}


def reminders(part, each):
    """So many images of each class."""
    images, labels = part
    kept = np.concatenate([np.flatnonzero(labels == label)[:each] for label in np.unique(labels)])
    return images[kept], labels[kept]


def joined(one, other):
    return tuple(np.concatenate(pair) for pair in zip(one, other))


class Learner:
    """A network and how it trains."""

    def __init__(self, options):
        import tensorflow as tf

        from elastictrainer.experiment import assembly
        from elastictrainer.experiment.settings import TrainSettings

        assembly.configure(options.seed)
        self._options = options
        self._settings = TrainSettings(
            model=options.model,
            dataset=options.dataset,
            weights=options.weights,
            image_size=options.image_size,
            learning_rate=options.learning_rate,
            rotation=None if ":" in options.model else 0.0,
        )
        self.model = assembly.make_model(self._settings, options.classes)
        self._loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self.timings = None

    def train(self, part, **how):
        """Train for the epochs of one part of a run; returns the figures."""
        from elastictrainer import Trainer
        from elastictrainer.experiment import assembly
        from elastictrainer.steps.rates import RateSchedule

        batch, epochs = self._options.batch_size, self._options.epochs
        optimizer = assembly.make_optimizer(self._settings)
        self.model.compile(optimizer, self._loss, metrics=["accuracy"])
        rates = RateSchedule(self._settings.learning_rate)
        trainer = Trainer(self.model, timings=self.timings, rates=rates, **how)
        history = trainer.fit(*part, batch_size=batch, epochs=epochs, verbose=0)
        self.timings = trainer.timings
        return history.elastic

    def accuracy(self, part):
        return 100 * self.model.evaluate(*part, verbose=0)[1]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", required=True, help="folder with train/CLASS/IMAGE and test/CLASS/IMAGE")
    parser.add_argument("--model", default="mobilenetv2", help="as for et-train")
    parser.add_argument("--weights", default="imagenet", help="as for et-train")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--epochs", type=int, default=12, help="before the drift, and again after it")
    parser.add_argument("--reminders", type=int, default=5, help="old images of a class in the small set")
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--csv", default="drift.csv")
    options = parser.parse_args()
    train, test = (read(f"{options.dataset}/{part}", options.image_size) for part in ("train", "test"))
    options.classes = len(np.unique(train[1]))
    learner, rows = Learner(options), []
    fresh = learner.model.get_weights()
    for drift, (old_train, old_test, new_train, new_test) in drifts(train, test).items():
        learner.model.set_weights(fresh)
        learner.train(old_train, scheme="full")
        learned = learner.model.get_weights()
        before = learner.accuracy(old_test), learner.accuracy(new_test)
        for each in (0, options.reminders):
            part = joined(new_train, reminders(old_train, each)) if each else new_train
            for name, how in SCHEMES.items():
                learner.model.set_weights(learned)
                figures = learner.train(part, **how)
                after = learner.accuracy(old_test), learner.accuracy(new_test)
                rows.append(
                    {
                        "drift": drift,
                        "scheme": name,
                        "seed": options.seed,
                        "reminders": each,
                        "old before": f"{before[0]:.2f}",
                        "new before": f"{before[1]:.2f}",
                        "old after": f"{after[0]:.2f}",
                        "new after": f"{after[1]:.2f}",
                        "forgotten": f"{before[0] - after[0]:.2f}",
                        "achieved": f"{figures['rho_achieved']:.3f}" if figures["rho_achieved"] else "",
                    }
                )
                print(rows[-1], flush=True)
    write_csv(options.csv, rows[0], (row.values() for row in rows))


if __name__ == "__main__":
    main()
