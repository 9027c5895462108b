"""Models of the user's: read from files, made by functions, taken over from earlier runs.

A `.keras` file is read as data: nothing in it is run unless the user trusts it.
"""

import contextlib
import importlib
import inspect
import json
import re
import zipfile
from pathlib import Path
from typing import Any, Dict, Iterator, Sequence, Tuple, Union

import numpy as np
import tensorflow as tf

from elastictrainer.errors import UsageError, reason
from elastictrainer.registry import import_object
from elastictrainer.runs.run_folder import RunFolder
from elastictrainer.steps.keras_compat.model_files import application_layers, load_model

_MOST_METADATA = 10_000  # bytes of metadata.json that are read
_MOST_CONFIG = 64_000_000  # bytes of config.json unpacked; ViT-B/16 has 0.2 million
# These layers run code, or load a file of any kind, that their configuration names.
_UNSAFE = ("Lambda", "__lambda__", "TFSMLayer", "TorchModuleWrapper", "JaxLayer", "FlaxLayer")
_PACKAGES = ("keras", "tf_keras", "tensorflow_addons", "vit_keras", "elastictrainer")  # of the zoo's models
# These read and write files.
_NOT_PARTS = ("utils", "saving", "applications", "datasets", "backend", "distribution")
_FUNCTIONS = ("activations", "losses", "metrics")  # parts whose functions a layer may name


def read(path: Union[str, Path], trust: bool = False) -> tf.keras.Model:
    """Read the model of a `.keras` file, the zip archive that `model.save` writes; not compiled.

    With `trust` what can run code is loaded as well: Lambda layers, and classes of other modules, which are
    imported. UsageError for no such archive, a damaged one, a module that is not found, or what would need
    `trust`, which is named.
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
        config["compile_config"] = None  # of the model as a whole: it is not read
        if trust:
            return load_model(path, False, _own_classes(config, str(path)))
        for what, _ in _unsafe_parts(config):
            raise UsageError(
                f"{path} has {what}, which can run any code when it is loaded. If you trust where the "
                "file is from: --trust-model."
            )
        return load_model(path)
    except UsageError:
        raise
    except Exception as error:  # Keras raises many kinds for a damaged file
        raise UsageError(f"Keras cannot load {path}: {_why(path, error)}") from None


def _why(path: Union[str, Path], error: Exception) -> str:
    """Say why Keras cannot load a file: another generation of Keras has saved it, or its error's cause."""
    here, saved = str(importlib.import_module("keras").__version__), ""
    with contextlib.suppress(Exception), zipfile.ZipFile(path) as archive:
        saved = str(json.loads(archive.open("metadata.json").read(_MOST_METADATA))["keras_version"])
    saved = saved if re.fullmatch(r"\d+(\.\w+){0,5}", saved) else here
    if saved[0] != here[0]:
        return (
            f"Keras {saved} has saved it, and this is {here}. Use a Python with Keras {saved[0]}, or there "
            "et-export, whose .tflite et-predict and et-evaluate read here."
        )
    cause = reason(Exception(str(error).rpartition("Exception encountered: ")[2]))
    versions = "" if saved == here else f" (saved by Keras {saved}, and this is {here})"
    return re.split(" Full object config| using config=", cause)[0] + versions


def loading_problem(model: tf.keras.Model) -> str:
    """Say why a file of this model could not be loaded by another process; "" where nothing is known.

    UsageError where it cannot be saved.
    """
    try:
        config = tf.keras.utils.serialize_keras_object(model)
    except Exception as error:  # of the user's layers, and Keras' own
        raise UsageError(f"the model cannot be saved: {reason(error)}") from None
    config["compile_config"] = None
    try:
        classes = _own_classes(config, "the model")
        modules = {kind.__module__ for kind in classes.values()}
        for what, part in _unsafe_parts(config):
            registered = tf.keras.utils.get_registered_object(str(part.get("config")))
            if part["class_name"] == "function":
                if getattr(registered, "__module__", None) not in modules:
                    return f"it has {what}, whose module is not in the file: make it a layer"
            elif part.get("registered_name") in classes:
                with tf.keras.utils.custom_object_scope(classes):
                    tf.keras.utils.deserialize_keras_object(part, safe_mode=False)
    except Exception as error:  # of the user's own code
        return reason(error)
    return ""


def _own_classes(config: Dict[str, Any], source: str) -> Dict[str, Any]:
    """Import the classes of other modules that the configuration of `source` names, by Keras' names."""
    found: Dict[str, Any] = {}
    for _, part in _unsafe_parts(config):
        name, module = part["class_name"], part.get("module")
        if name in (*_UNSAFE, "function") or not isinstance(module, str):
            continue
        try:
            value: Any = importlib.import_module(module)
            for inner in name.split("."):
                value = getattr(value, inner)
        except Exception as error:  # whatever an import of the user's runs into
            raise UsageError(
                f"{source} needs the class {module}.{name}, which cannot be imported ({reason(error)}). Set "
                "PYTHONPATH to the folder of its module; a class inside a function is not found."
            ) from None
        found[part.get("registered_name") or name] = found[name] = value
    return found


def _unsafe_parts(value: Any) -> Iterator[Tuple[str, Dict[str, Any]]]:
    """List the parts of a configuration that could do more than build layers, each with what it is."""
    if isinstance(value, dict):
        name, module = value.get("class_name"), value.get("module")
        if isinstance(name, str) and ("config" in value or module is not None):
            what = _danger(name, module, value)
            if what:
                yield what, value
        vocabulary = value.get("vocabulary")
        if isinstance(vocabulary, str):
            yield f"a vocabulary that is read from the file {vocabulary!r}", {"class_name": "vocabulary"}
        for inner in value.values():
            yield from _unsafe_parts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _unsafe_parts(inner)


def _danger(name: str, module: Any, value: Dict[str, Any]) -> str:
    if name in _UNSAFE:
        return f"a layer of the kind {name}"
    if name == "function":
        known = _is_known_function(module, value.get("config"))
        return "" if known else f"the function {module}:{value.get('config')}"
    if module is None or _is_known(module):
        return ""
    # A layer that one of Keras' networks is made of, such as ConvNeXt's LayerScale.
    is_part = getattr(application_layers().get(name), "__module__", None) == module
    return "" if is_part else f"the class {module}.{name}"


def _is_known_function(module: Any, name: Any) -> bool:
    if module in ("builtins", None):  # as Keras writes its own functions
        return isinstance(name, str) and any(hasattr(getattr(tf.keras, part), name) for part in _FUNCTIONS)
    return _is_known(module) and len(_parts(module)) > 1 and _parts(module)[1] in _FUNCTIONS


def _is_known(module: Any) -> bool:
    package, *inner = _parts(module) if isinstance(module, str) else ("",)
    return package in _PACKAGES and not any(part in _NOT_PARTS for part in inner)


def _parts(module: str) -> Tuple[str, ...]:
    """Return the parts of a module's name; "src", under which Keras keeps them, is left out."""
    return tuple(part for part in module.split(".") if part != "src")


def from_function(name: str, classes: int, input_shape: Tuple[int, int, int]) -> tf.keras.Model:
    """Call the user's "package.module:function", with `num_classes` and `input_shape` if it takes them.

    UsageError where it cannot be imported, or raises.
    """
    function = import_object("--model", name)
    arguments = {"num_classes": classes, "input_shape": input_shape}
    parameters = inspect.signature(function).parameters
    try:
        return function(**{key: value for key, value in arguments.items() if key in parameters})
    except Exception as error:  # the user's own code
        raise UsageError(f"--model {name} failed: {type(error).__name__}: {error}") from error


def require_logits(name: str, model: Any, classes: int) -> None:
    """Raise UsageError unless the model `name` is a built Keras model of float32 logits (batch, classes)."""
    why = _no_logits(model, classes)
    if why:
        raise UsageError(f"--model {name} {why}.")


def _no_logits(model: Any, classes: int) -> str:
    if not isinstance(model, tf.keras.Model):
        return f"gave a {type(model).__name__}, not a Keras model"
    if not model.built:
        return "is not built: call it once, or give it an input shape"
    output = model.output_shape
    if not isinstance(output, tuple) or len(output) != 2 or output[1] != classes:
        return f"gives outputs of shape {output}; the data has {classes} classes: (None, {classes})"
    activation = last_activation(model)
    if activation:
        return f"ends in a {activation}; it must give logits. Remove the last activation"
    dtype = model.layers[-1].compute_dtype if model.layers else "float32"
    if dtype in ("bfloat16", "float16"):
        return f'gives {dtype} logits, too coarse for a loss: make its last layer with dtype="float32"'
    return ""


def last_activation(model: tf.keras.Model) -> str:
    """Name the activation that makes a model's only output: "softmax", "sigmoid" or "" for any other."""
    inputs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in model.inputs]
    function = tf.function(lambda x: model(x, training=False))
    graph = function.get_concrete_function(inputs if len(inputs) > 1 else inputs[0]).graph
    return activation_of(graph.outputs[0])


def activation_of(outputs: tf.Tensor) -> str:
    """Name the op, "softmax" or "sigmoid", that makes a tensor of a graph; "" where it is another.

    The graph knows also where a layer has a function as its activation, or stands in another model.
    """
    op = outputs.op
    while op.type in _SAME_VALUES:
        op = op.inputs[0].op
    return {"Softmax": "softmax", "Sigmoid": "sigmoid"}.get(op.type, "")


# Ops that hand on the values of their first input.
_SAME_VALUES = ("Identity", "Cast", "Reshape", "Squeeze", "StopGradient", "PreventGradient", "EnsureShape")


def model_of(run: RunFolder, class_names: Sequence[str], trust: bool = False) -> tf.keras.Model:
    """Build the model of a finished run, with a head for `class_names`.

    If these are the run's own classes in the same order, the model is returned as it was saved. Otherwise it
    gets a new head, in which a class that the run knew keeps its weights and bias; those of a new class are
    zero. UsageError where the run has no model, that needs `trust` (see `read`), or a new head
    cannot be made because its last layer is not dense.
    """
    model = read(run.weights_path(), trust)  # the best where there are such
    known = run.class_names()
    if known == list(class_names):
        return model
    head = model.layers[-1]
    if not isinstance(head, tf.keras.layers.Dense) or head.output is not model.outputs[0]:
        raise UsageError(
            f"the model of {run.path} has other classes and does not end in a dense layer "
            "that could be replaced."
        )
    features = head.input
    kernel = np.zeros((int(features.shape[-1]), len(class_names)), np.float32)
    bias = np.zeros(len(class_names), np.float32)
    # A head without a bias has the kernel alone: then the zeros behind it stand for the bias.
    known_kernel, known_bias = (*head.get_weights(), np.zeros(head.units, np.float32))[:2]
    for label, name in enumerate(class_names):
        if name in known:
            kernel[:, label] = known_kernel[:, known.index(name)]
            bias[label] = known_bias[known.index(name)]
    new_head = tf.keras.layers.Dense(len(class_names), name=head.name, dtype="float32")
    new_model = tf.keras.Model(model.inputs[0], new_head(features), name=model.name)
    new_head.set_weights([kernel, bias])
    return new_model
