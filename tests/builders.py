"""What tests build: data, networks, profiles and images of their own."""

import itertools

import numpy as np

ONE_THREAD = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1", "OMP_NUM_THREADS": "1"}


class ArrayData:
    """Minibatches of random images in memory, as et-train's data gives them."""

    def __init__(self, tf, shape=(8, 8, 3), classes=3, batch=4, steps=2, seed=0):
        random = np.random.default_rng(seed)
        self.steps_per_epoch = steps
        self._labels = random.integers(0, classes, (steps, batch))
        self._images = random.normal(size=(steps, batch, *shape)) + self._labels[..., None, None, None]
        self._tf = tf

    def train(self, epoch, first=0):
        order = np.random.default_rng(epoch).permutation(self.steps_per_epoch)
        for k in order[first:]:
            yield self._tf.constant(self._images[k], self._tf.float32), self._tf.constant(self._labels[k])

    def stream(self, epoch=0, first=0):
        def minibatches():
            yield from self.train(epoch, first)
            for later in itertools.count(epoch + 1):
                yield from self.train(later)

        return self._tf.data.Dataset.from_generator(
            minibatches,
            output_signature=(
                self._tf.TensorSpec(self._images.shape[1:], self._tf.float32),
                self._tf.TensorSpec(self._labels.shape[1:], self._tf.int64),
            ),
        )

    def probe(self, step):
        return ArrayData.train(self, 1_000_000 + step)

    def test(self):
        return ArrayData.train(self, 0)


def train_classifier(
    tf, model, data, optimizer=None, *, epochs=4, run=None, resume=False, metering=None, seed=0, **options
):
    """Train as et-train does, on small networks and data; returns Keras' History with its figures."""
    from elastictrainer import Trainer
    from elastictrainer.steps import optimizers
    from elastictrainer.steps.objective import classification_loss
    from elastictrainer.training.checkpointing import Checkpointing
    from elastictrainer.training.evaluation import Evaluation
    from elastictrainer.training.metering import EnergyMetering
    from elastictrainer.training.run_record import RunRecord

    trainer = Trainer(model, probe=data.probe, **options)
    accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")
    trainer.compile(optimizer or optimizers.make("sgd"), classification_loss(), metrics=[accuracy])
    saver = run and Checkpointing(run, resume=resume)
    evaluation = Evaluation(data.test, saver.stop_if_asked) if saver else Evaluation(data.test)
    callbacks = [metering or EnergyMetering(), evaluation, RunRecord(run, quiet=True, seed=seed)]
    return trainer.fit(
        data.stream,
        epochs=epochs,
        steps_per_epoch=data.steps_per_epoch,
        callbacks=[*callbacks, *([saver] if saver else [])],
        verbose=0,
    )


def tensor_names(model):
    """Of the trainable tensors, in order: `layer/kernel`."""
    from elastictrainer.steps.keras_compat import name_of

    return [name_of(v) for v in model.trainable_weights]


def quick_profile(model, batch, loss=None, optimizer=None, **options):
    """A profile of `model` for classification, measured in a second or two: its times are rough."""
    from elastictrainer import profile_model
    from elastictrainer.steps.objective import classification_loss

    options = {"warmup": 1, "steps": 2, "calibrate_s": 1.0, **options}
    return profile_model(model, loss or classification_loss(), batch, optimizer, **options)


def invented_timings(model):
    """An invented profile of `model`, under which selections differ more than in so short steps measured."""
    from elastictrainer import TensorTimings

    names = tensor_names(model)
    return TensorTimings.from_chain(names, 1.0, [0.2] * len(names), [0.1] * len(names))


def small_network(tf, classes=3, dropout=0.2):
    """Two convolutions with batch norm around a shortcut, and a dense head: 10 trainable tensors."""
    layers = tf.keras.layers
    inputs = tf.keras.Input((8, 8, 3))
    stem = layers.ReLU()(
        layers.BatchNormalization(momentum=0.8, name="stem_bn")(
            layers.Conv2D(4, 3, padding="same", name="stem")(inputs)
        )
    )
    inner = layers.BatchNormalization(momentum=0.8, name="inner_bn")(
        layers.Conv2D(4, 3, padding="same", name="inner")(stem)
    )
    pooled = layers.GlobalAveragePooling2D()(layers.ReLU()(layers.Add()([stem, inner])))
    return tf.keras.Model(inputs, layers.Dense(classes, name="head")(layers.Dropout(dropout)(pooled)))


def make_images(folder, train, test=4):
    """Two classes of small grey images, dark and light, as JPEG files in split/class/."""
    from PIL import Image

    for split, count in {"train": train, "test": test}.items():
        for label, grey in {"dark": 50, "light": 200}.items():
            (folder / split / label).mkdir(parents=True)
            for k in range(count):
                Image.new("RGB", (20, 20), (grey + k, grey, grey)).save(folder / split / label / f"{k}.jpg")
