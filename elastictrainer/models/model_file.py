"""A `.keras` file, read as data: nothing in it is run unless the user trusts it."""

import json
import zipfile
from pathlib import Path
from typing import Any, Iterator, Tuple, Union

import tensorflow as tf

from elastictrainer.errors import UsageError
from elastictrainer.steps.keras_compat.model_files import application_layers, load_model

_MOST_CONFIG = 64_000_000  # bytes of config.json unpacked; ViT-B/16 has 0.2 million
# These layers run code, or load a file of any kind, that their configuration names.
_UNSAFE = ("Lambda", "__lambda__", "TFSMLayer", "TorchModuleWrapper", "JaxLayer", "FlaxLayer")
_PACKAGES = ("keras", "tf_keras", "tensorflow_addons", "vit_keras", "elastictrainer")  # of the zoo's models
# These read and write files.
_NOT_PARTS = ("utils", "saving", "applications", "datasets", "backend", "distribution")
_FUNCTIONS = ("activations", "losses", "metrics")  # parts whose functions a layer may name


def read(path: Union[str, Path], trust: bool = False) -> tf.keras.Model:
    """Read the model of a `.keras` file, the zip archive that `model.save` writes; not compiled.

    With `trust` what can run code is loaded as well: Lambda layers and classes of other packages. UsageError
    for no such archive, a damaged one, or what would need `trust`, which is named.
    """
    if not Path(path).is_file():
        raise UsageError(f"there is no model file {path}.")
    try:
        if not zipfile.is_zipfile(path):
            raise UsageError(
                f"{path} is no Keras archive (a zip file). HDF5 files can hide code: load it where you trust "
                "it, and save it by model.save('NAME.keras')."
            )
        with zipfile.ZipFile(path) as archive:
            size = archive.getinfo("config.json").file_size
            if size > _MOST_CONFIG:
                raise UsageError(f"{path} has a configuration of {size:,} bytes: it is no model's.")
            config = json.loads(archive.read("config.json"))
        if not trust:
            config["compile_config"] = None  # of the model as a whole: it is not read
            for reason in _reasons_not_to(config):
                raise UsageError(
                    f"{path} has {reason}, which can run any code when it is loaded. If you trust where the "
                    "file is from: --trust-model."
                )
        return load_model(path, safe_mode=not trust)
    except UsageError:
        raise
    except Exception as error:  # Keras raises many kinds for a damaged file
        raise UsageError(f"Keras cannot load {path}: {error}") from None


def _reasons_not_to(value: Any) -> Iterator[str]:
    """List the parts of a configuration that could do more than build layers."""
    if isinstance(value, dict):
        name, module = value.get("class_name"), value.get("module")
        if isinstance(name, str) and ("config" in value or module is not None):
            yield from _reasons_of(name, module, value)
        vocabulary = value.get("vocabulary")
        if isinstance(vocabulary, str):
            yield f"a vocabulary that is read from the file {vocabulary!r}"
        for inner in value.values():
            yield from _reasons_not_to(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _reasons_not_to(inner)


def _reasons_of(name: str, module: Any, value: Any) -> Iterator[str]:
    if name in _UNSAFE:
        yield f"a layer of the kind {name}"
    elif name == "function":
        if not _is_known_function(module, value.get("config")):
            yield f"the function {module}:{value.get('config')}"
    elif module is not None and not _is_known(module) and not _is_layer_of_applications(module, name):
        yield f"the class {module}.{name}"


def _is_known_function(module: Any, name: Any) -> bool:
    if module in ("builtins", None):  # as Keras writes its own functions
        return isinstance(name, str) and any(hasattr(getattr(tf.keras, part), name) for part in _FUNCTIONS)
    return _is_known(module) and len(_parts(module)) > 1 and _parts(module)[1] in _FUNCTIONS


def _is_known(module: Any) -> bool:
    package, *inner = _parts(module) if isinstance(module, str) else ("",)
    return package in _PACKAGES and not any(part in _NOT_PARTS for part in inner)


def _is_layer_of_applications(module: Any, name: str) -> bool:
    """Return whether it is a layer that one of Keras' networks is made of, such as ConvNeXt's LayerScale."""
    kind = application_layers().get(name)
    return kind is not None and kind.__module__ == module


def _parts(module: str) -> Tuple[str, ...]:
    """Return the parts of a module's name; "src", under which Keras keeps them, is left out."""
    return tuple(part for part in module.split(".") if part != "src")
