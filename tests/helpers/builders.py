"""Builders for tests: data, networks, profiles and images of their own."""

import itertools
from pathlib import Path

import numpy as np

ONE_THREAD = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1", "OMP_NUM_THREADS": "1"}


def write_digits(folder, step):
    """Write every `step`-th image of the embedded data into class folders; returns the test part's arrays."""
    from PIL import Image

    from elastictrainer.data.demo_digits import digits

    for part in ("train", "test"):
        images, labels = (array[::step] for array in digits(part))
        for k, (pixels, label) in enumerate(zip(images, labels)):
            place = Path(folder) / part / str(label)
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(place / f"{k:04d}.png")
    return images, labels


class ArrayData:
    """Minibatches of random images in memory, as et-train's data gives them."""

    def __init__(self, tf, shape=(8, 8, 3), classes=3, batch=4, steps=2, seed=0):
        random = np.random.default_rng(seed)
        self.steps_per_epoch = steps
        self.asked = 0  # minibatches that `train` has given
        self._labels = random.integers(0, classes, (steps, batch))
        self._images = random.normal(size=(steps, batch, *shape)) + self._labels[..., None, None, None]
        self._tf = tf

    def train(self, epoch, first=0):
        for minibatch in self._minibatches(epoch, first):
            self.asked += 1
            yield minibatch

    def _minibatches(self, epoch, first=0):
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
        return self._minibatches(1_000_000 + step)

    def test(self):
        return self._minibatches(0)


def bright_images(count=160, seed=0):
    """Images of three classes, each brighter than the one before, and their labels."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 3, count)
    return (random.normal(size=(count, 8, 8, 3)) + labels[:, None, None, None]).astype(np.float32), labels


def compiled_trainer(tf, model, optimizer=None, **options):
    """A trainer of `model` for classification, compiled as a user of Keras does it."""
    from elastictrainer import Trainer

    trainer = Trainer(model, **options)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    trainer.compile(optimizer or tf.keras.optimizers.SGD(0.05), loss, metrics=["accuracy"])
    return trainer


def train_classifier(
    tf, model, data, optimizer=None, run=None, resume=False, metering=None, seed=0, callbacks=(), **options
):
    """Train as et-train does, on small networks and data; returns Keras' History with its figures."""
    from elastictrainer import Trainer
    from elastictrainer.steps import optimizers
    from elastictrainer.steps.objective import classification_loss
    from elastictrainer.training.checkpoints import Checkpointing
    from elastictrainer.training.energy import EnergyMetering
    from elastictrainer.training.evaluation import Evaluation
    from elastictrainer.training.record import RunRecord

    epochs = options.pop("epochs", 4)
    trainer = Trainer(model, probe=data.probe, **options)
    accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")
    trainer.compile(optimizer or optimizers.make("sgd"), classification_loss(), metrics=[accuracy])
    saver = run and Checkpointing(run, resume=resume)
    evaluation = Evaluation(data.test, saver.stop_if_asked) if saver else Evaluation(data.test)
    ours = [metering or EnergyMetering(), evaluation, RunRecord(run, quiet=True, seed=seed)]
    callbacks = [*ours, *callbacks, *([saver] if saver else [])]
    given = {"epochs": epochs, "steps_per_epoch": data.steps_per_epoch, "callbacks": callbacks}
    return trainer.fit(data.stream, **given, verbose=0)


def spoil(file):
    """Damage an image so that only decoding finds it: its end is whole."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 255
    file.write_bytes(content)


def address(variable):
    """Where the memory of a variable's values begins."""
    return np.frombuffer(memoryview(variable.read_value()), np.uint8).__array_interface__["data"][0]


def tensor_names(model):
    """Of the trainable tensors, in order: `layer/kernel`."""
    from elastictrainer.steps.keras_compat.variables import name_of

    return [name_of(v) for v in model.trainable_weights]


def weights_of(model):
    """Copies of the trainable tensors, in order."""
    return [v.numpy() for v in model.trainable_weights]


def changed_tensors(model, before):
    """Names of the trainable tensors that are no longer what `weights_of` returned."""
    return {
        name
        for name, now, then in zip(tensor_names(model), weights_of(model), before)
        if not np.array_equal(now, then)
    }


def quick_profile(model, batch, loss=None, optimizer=None, **options):
    """A profile of `model` for classification, measured in a second or two: its times are rough."""
    from elastictrainer import profile_model
    from elastictrainer.steps.objective import classification_loss

    options = {"warmup_steps": 1, "steps": 2, "calibrate_s": 0.3, **options}
    return profile_model(model, loss or classification_loss(), batch, optimizer, **options)


def invented_profile(model):
    """An invented profile of `model`, under which selections differ more than in so short steps measured."""
    from elastictrainer import Profile

    names = tensor_names(model)
    return Profile.from_chain(names, 1.0, [0.2] * len(names), [0.1] * len(names))


def random_profile(random, n=9, groups=12, frozen_saving=0.0):
    """A random profile of `n` tensors, whose dy groups need not be nested.

    Args:
        random: NumPy's generator.
        groups: dy groups at most; of each drawn set, those with one member at most are left out.
    """
    from elastictrainer import Profile
    from elastictrainer.profiler.cost_groups import CostGroups

    sets = [np.flatnonzero(random.random(n) < 0.5) for _ in range(groups)]
    sets = [s for s in sets if len(s) > 1]
    forward = [(), *(np.arange(k) for k in range(1, n))]
    return Profile(
        names=tuple(f"w{i}" for i in range(n)),
        shapes=((2, 3),) * n,
        dw=CostGroups.singletons(random.random(n)),
        dy=CostGroups.from_sets(n, sets, random.random(len(sets))),
        forward=CostGroups.from_sets(n, forward, random.random(len(forward))),
        t_update=random.random(n) / 10,
        connected=np.ones(n, bool),
        estimated=np.zeros(n, bool),
        frozen_saving=frozen_saving,
        overlap=-0.2,
        metadata={"model": "m"},
        validation=[{"selected": [1], "predicted_ms": 1.0, "measured_ms": 2.0}],
    )


def best_by_brute_force(profile, importance, rho):
    """The largest importance that any of the 2^N selections reaches within `rho` of the full step."""
    masks = np.array(list(itertools.product([False, True], repeat=len(profile))))
    budget = rho * profile.full_ms * (1 + 1e-12)
    return max(importance[m].sum() for m in masks if profile.step_time(m) <= budget)


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


def roughly_profiled(name):
    """The text of configs/NAME.yaml, with profiles in a few seconds."""
    text = (Path(__file__).resolve().parents[2] / "configs" / f"{name}.yaml").read_text()
    kept = [line for line in text.splitlines() if not line.startswith("calibration_seconds")]
    return "\n".join([*kept, "calibration_seconds: 1", "steps: 4", "warmup_steps: 10", ""])


def image_batch(tf):
    """Two images and labels for `small_network`."""
    return tf.ones((2, 8, 8, 3)), tf.constant([0, 1])


def step_of(model, optimizer, mask=None):
    """A compiled step of the tensors of `mask` of a classifier; its optimizer is built for all of them."""
    from elastictrainer import Objective
    from elastictrainer.steps import optimizers
    from elastictrainer.steps.compiled_step import CompiledStep
    from elastictrainer.steps.objective import classification_loss

    optimizers.build(optimizer, model.trainable_weights)
    variables = [v for k, v in enumerate(model.trainable_weights) if mask is None or mask[k]]
    return CompiledStep(Objective(model, classification_loss()), optimizer, variables)


def traced_step(tf, model, batch, mask=None):
    """A compiled step of the tensors of `mask`, traced on `batch`."""
    from elastictrainer.steps import optimizers

    step = step_of(model, optimizers.make("sgd"), mask)
    step.trace(*batch)
    return step


def tiny_pets(folder, second="test", label="label", labelled=True):
    """A builder of tensorflow-datasets that writes real records: eleven and five images of cats and dogs.

    Args:
        folder: where it keeps them.
        second: name of the second split; None: there is none.
        label: name of the feature.
        labelled: the second split says what is on its images.
    """
    import tensorflow_datasets as tfds

    with tfds.core.registered.skip_registration():

        class TinyPets(tfds.core.GeneratorBasedBuilder):
            VERSION = tfds.core.Version("1.0.0")

            def _info(self):
                features = {
                    "image": tfds.features.Image(),
                    label: tfds.features.ClassLabel(names=["cat", "dog"]),
                }
                return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

            def _split_generators(self, manager):
                parts = {"train": self._generate_examples(11), second: self._generate_examples(5, labelled)}
                return {name: examples for name, examples in parts.items() if name}

            def _generate_examples(self, count, labelled=True):
                for k in range(count):
                    image = np.full((20 + k, 30, 3), 40 + 150 * (k % 2), np.uint8)
                    yield k, {"image": image, label: k % 2 if labelled else -1}

    return TinyPets(data_dir=str(folder))


def tflite(tf, path, pixels):
    """What a TFLite file gives for (n, H, W, 3) pixels."""
    interpreter = tf.lite.Interpreter(model_path=str(path))
    given, got = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
    interpreter.resize_tensor_input(given["index"], pixels.shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(given["index"], pixels)
    interpreter.invoke()
    return interpreter.get_tensor(got["index"])
