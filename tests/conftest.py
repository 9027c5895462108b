import importlib
import logging
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from builders import ONE_THREAD

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# pytest-xdist starts a process for each core: more threads would only wait for each other.
if "PYTEST_XDIST_WORKER" in os.environ:
    for name in ONE_THREAD:
        os.environ.setdefault(name, ONE_THREAD[name])
# The key that run folders are signed by is the user's own; tests make another.
CONFIG_HOME = tempfile.TemporaryDirectory(prefix="elastictrainer-config-")
os.environ["XDG_CONFIG_HOME"] = CONFIG_HOME.name

import numpy as np
import pytest

from elastictrainer.runs.log import LOG
from elastictrainer.runs.resident import exempt_from_collection

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"


def pytest_collection_modifyitems(items):
    """Files that take long first, so that none of them begins when the other processes are done."""
    slow = {item.path for item in items if item.get_closest_marker("slow") or item.get_closest_marker("long")}
    items.sort(key=lambda item: (item.path not in slow, item.path.parent.name != "training"))


@pytest.fixture
def script(monkeypatch):
    """A function that imports a module of scripts/, its benchmarks or studies/; no other test sees it."""
    folders = [ROOT / "studies", ROOT / "scripts" / "benchmarks", ROOT / "scripts"]
    for folder in folders:
        monkeypatch.syspath_prepend(str(folder))
    yield importlib.import_module
    for folder in folders:
        for path in folder.glob("*.py"):
            sys.modules.pop(path.stem, None)


@pytest.fixture
def sigint():
    """Python's own handling of SIGINT, also where pytest was started in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def mixed_precision(tf):
    """Layers that are made in this test compute in bfloat16."""
    tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")


@pytest.fixture(autouse=True)
def float32_again():
    """On a processor with bfloat16 units a run in this process may have chosen these."""
    yield
    if "tensorflow" in sys.modules:
        sys.modules["tensorflow"].keras.mixed_precision.set_global_policy("float32")


@pytest.fixture(autouse=True)
def log_as_it_was():
    """Remove the handlers that a test adds to the log."""
    yield
    LOG.handlers.clear()
    LOG.setLevel(logging.NOTSET)


@pytest.fixture(autouse=True)
def registered_here_only(monkeypatch):
    """Undo a test's registrations, so that no other test of the same process sees them."""
    from elastictrainer.selection import importance

    monkeypatch.setattr(importance, "METRICS", dict(importance.METRICS))
    yield
    # An import registers once, and the next test that imports it wants it again.
    sys.modules.pop("userschemes", None)


@pytest.fixture
def cub100() -> Path:
    return images_in("cub100")


@pytest.fixture
def flowers12() -> Path:
    return images_in("flowers12")


@pytest.fixture
def mobilenet_weights() -> Path:
    return weights_file("mobilenet_v2*.h5")


@pytest.fixture
def squeezenet_weights() -> Path:
    return weights_file("squeezenet*.h5")


def images_in(name: str) -> Path:
    folder = SHARED / "data" / name
    if not folder.is_dir():
        pytest.skip(f"the real images (shared/data/{name}) are not beside this checkout")
    return folder


def weights_file(pattern: str) -> Path:
    files = sorted((SHARED / "weights").glob(pattern))
    if not files:
        pytest.skip("the real weights (shared/weights) are not beside this checkout")
    return files[0]


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


@pytest.fixture
def class_folders(image_folder, tmp_path):
    """CLASS/IMAGE without a split: 11 dark images, 16 light ones."""
    for label in ("dark", "light"):
        (tmp_path / "all" / label).mkdir(parents=True)
        for split in ("train", "test"):
            for image in sorted((image_folder / split / label).iterdir()):
                if label == "light" or image.stem in "0123456":
                    shutil.copy(image, tmp_path / "all" / label / f"{split}{image.name}")
    return tmp_path / "all"


@pytest.fixture
def rough_profiles(monkeypatch):
    """Profiles that runs make for themselves take a second or two: their times are rough."""
    import elastictrainer

    for option, value in {"warmup_steps": 3, "steps": 2, "calibrate_s": 0.5}.items():
        monkeypatch.setitem(elastictrainer.profile_model.__kwdefaults__, option, value)


@pytest.fixture(scope="session")
def tf():
    import tensorflow

    from elastictrainer.experiment.assembly import configure

    configure(seed=0)
    exempt_from_collection()  # profiles and runs collect garbage often
    return tensorflow


@pytest.fixture(scope="module", autouse=True)
def earlier_files_objects_are_not_collected():
    """Keras keeps the graph of every model: each file's tests would wait longer than the ones before."""
    if "tensorflow" in sys.modules:
        exempt_from_collection()
