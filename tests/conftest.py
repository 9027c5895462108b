import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ONE_THREAD = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1", "OMP_NUM_THREADS": "1"}
if "PYTEST_XDIST_WORKER" in os.environ:  # a process for each core: more threads would only wait for each other
    for name in ONE_THREAD:
        os.environ.setdefault(name, ONE_THREAD[name])

import numpy as np
import pytest

SHARED = Path(__file__).resolve().parent.parent.parent / "shared"


def pytest_collection_modifyitems(items):
    """Files with slow tests first: what takes minutes must not begin last, when the other processes have nothing left."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(autouse=True)
def registered_here_only(monkeypatch):
    """What a test registers, no other test of the same process sees, in whatever order they run."""
    from elastictrainer import importance, schemes

    monkeypatch.setattr(schemes, "SCHEMES", dict(schemes.SCHEMES))
    monkeypatch.setattr(importance, "METRICS", dict(importance.METRICS))
    yield
    sys.modules.pop("userschemes", None)  # an import registers once, and the next test that imports it wants it again


@pytest.fixture
def cub100() -> Path:
    folder = SHARED / "data" / "cub100"
    if not folder.is_dir():
        pytest.skip("the real images (shared/data/cub100) are not beside this checkout")
    return folder


@pytest.fixture
def mobilenet_weights() -> Path:
    found = sorted((SHARED / "weights").glob("mobilenet_v2*.h5"))
    if not found:
        pytest.skip("the real weights (shared/weights) are not beside this checkout")
    return found[0]


@pytest.fixture
def image_folder(tmp_path) -> Path:
    """Two classes, told apart by brightness: 12 training and 4 test images of each."""
    from PIL import Image

    random = np.random.default_rng(0)
    for split, count in {"train": 12, "test": 4}.items():
        for label, brightness in {"dark": 60, "light": 190}.items():
            folder = tmp_path / "images" / split / label
            folder.mkdir(parents=True)
            for k in range(count):
                pixels = random.normal(brightness, 20, (40, 36, 3)).clip(0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{k}.png")
    return tmp_path / "images"


@pytest.fixture(scope="session")
def tf():
    import tensorflow

    from elastictrainer import profile_model
    from elastictrainer.assembly import configure

    configure(seed=0)
    profile_model.__kwdefaults__["calibrate_s"] = 1.0  # what tests ask of a profile needs no exact one
    return tensorflow


class ArrayData:
    """Minibatches of random images in memory, as the trainer takes them."""

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

    def test(self):
        return self.train(0)


def tensor_names(model):
    """Of the trainable tensors, in order: `layer/kernel`."""
    from elastictrainer.keras_stack import name_of

    return [name_of(v) for v in model.trainable_weights]


def invented_timings(model):
    """A profile of `model` that leaves something to choose: its steps are too short for a measured one that always does."""
    from elastictrainer import TensorTimings

    names = tensor_names(model)
    return TensorTimings.from_chain(names, 1.0, [0.2] * len(names), [0.1] * len(names))


def small_network(tf, classes=3, dropout=0.2):
    """Two convolutions with batch norm around a shortcut, and a dense head: 10 trainable tensors."""
    layers = tf.keras.layers
    inputs = tf.keras.Input((8, 8, 3))
    stem = layers.ReLU()(layers.BatchNormalization(momentum=0.8, name="stem_bn")(layers.Conv2D(4, 3, padding="same", name="stem")(inputs)))
    inner = layers.BatchNormalization(momentum=0.8, name="inner_bn")(layers.Conv2D(4, 3, padding="same", name="inner")(stem))
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
