"""Files of models, and the networks of keras.applications that they may hold."""

import contextlib
import datetime
import importlib
import json
import sys
import tempfile
import warnings
import zipfile
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Optional, Union

import tensorflow as tf

from elastictrainer.runs.files import atomic_write
from elastictrainer.steps.keras_compat.version import KERAS_3

# Where Keras defines the helpers that its applications call.
_HELPERS = {
    "get_file": sys.modules[tf.keras.utils.get_file.__module__],
    "obtain_input_shape": sys.modules[tf.keras.applications.imagenet_utils.preprocess_input.__module__],
}
_PARTS = ("metadata.json", "config.json", "model.weights.h5")  # of a Keras file, in their order
_APPLICATIONS = _HELPERS["obtain_input_shape"].__name__.rpartition(".")[0] + "."  # "keras.src.applications."


def load_model(
    path: Union[str, Path], safe_mode: bool = True, classes: Optional[Dict[str, Any]] = None
) -> tf.keras.Model:
    """Load the model of a Keras file, not compiled; for safety call `models.user_models.read`. Raises what
    Keras raises. `classes` are those that are not Keras' own, by their registered names.

    Keras 2 reads weights inside the archive slowly: two minutes for ViT-B/16. They are extracted first,
    unless the archive holds anything that only Keras can load: shared objects, or further files.
    """
    if KERAS_3 or not zipfile.is_zipfile(path):
        return tf.keras.models.load_model(path, classes, compile=False, safe_mode=safe_mode)
    with zipfile.ZipFile(path) as archive:
        config = archive.read("config.json").decode()
        if "shared_object_id" in config or set(archive.namelist()) != set(_PARTS):
            return tf.keras.models.load_model(path, classes, compile=False, safe_mode=safe_mode)
        # Keras 2 does not find the classes of its own that it has not registered.
        unregistered = {**(application_layers() if _APPLICATIONS in config else {}), **(classes or {})}
        model = tf.keras.saving.deserialize_keras_object(
            {**json.loads(config), "compile_config": None}, unregistered, safe_mode=safe_mode
        )
        with tempfile.TemporaryDirectory(prefix="elastictrainer-model-") as folder:
            model.load_weights(archive.extract("model.weights.h5", folder))
    return model


def save_model(model: tf.keras.Model, path: Path, comment: str = "") -> None:
    """Save a model as `model.save` does, completely or not at all, with a comment in the archive.

    Weights go to the disk one by one: by itself Keras makes that part of the archive in memory.
    """
    place = path.parent.resolve()  # Keras takes relative paths for parts of one of its own
    with atomic_write(path) as unfinished, tempfile.TemporaryDirectory(".part", ".", place) as folder:
        if KERAS_3:
            model.save(folder, zipped=False)
        else:
            _write_parts(model, folder)
        with zipfile.ZipFile(unfinished, "w") as archive:
            files = {p.relative_to(folder).as_posix() for p in Path(folder).rglob("*") if p.is_file()}
            for name in (*_PARTS, *sorted(files - set(_PARTS))):
                archive.write(Path(folder, name), name)
            archive.comment = comment.encode()


def _write_parts(model: tf.keras.Model, folder: str) -> None:
    """Write the parts of a Keras file into `folder`, as Keras 3 does by itself."""
    saving = importlib.import_module("keras.src.saving.saving_lib")
    metadata, config, weights = (Path(folder, name) for name in _PARTS)
    with importlib.import_module("keras.src.saving.serialization_lib").ObjectSharingScope():
        config.write_text(json.dumps(tf.keras.saving.serialize_keras_object(model)))
    version = importlib.import_module("keras").__version__
    saved = datetime.datetime.now().strftime("%Y-%m-%d@%H:%M:%S")
    metadata.write_text(json.dumps({"keras_version": version, "date_saved": saved}))
    store = saving.H5IOStore(str(weights), mode="w")
    assets = saving.DiskIOStore(str(Path(folder, "assets")), mode="w")
    saving._save_state(
        model, weights_store=store, assets_store=assets, inner_path="", visited_trackables=set()
    )
    store.close()
    assets.close()


def application_layers() -> Dict[str, type]:
    """Return the layers that keras.applications defines for its networks, such as LayerScale, by name."""
    modules = [module for name, module in list(sys.modules.items()) if name.startswith(_APPLICATIONS)]
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, tf.keras.layers.Layer)
        and value.__module__ == module.__name__
    }


@contextlib.contextmanager
def application_helpers(**replacements: Callable[..., Any]) -> Iterator[None]:
    """Let networks of keras.applications call these helpers in this block, instead of their own.

    These are `get_file`, which downloads weights, and `obtain_input_shape`, which knows a network's sizes.
    What Keras warns of, such as weights made for another image size, is not shown.
    """
    before = {name: getattr(_HELPERS[name], name) for name in replacements}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for name, replacement in replacements.items():
                setattr(_HELPERS[name], name, replacement)
            yield
        finally:
            for name, original in before.items():
                setattr(_HELPERS[name], name, original)
