"""Export of a trained model: no augmentation, preprocessing included, class names attached."""

import tempfile
import zipfile
from pathlib import Path
from typing import Optional, Sequence, Union

import numpy as np
import tensorflow as tf

from elastictrainer.data.pictures import describe_preprocessing
from elastictrainer.errors import RunError, UsageError, reason
from elastictrainer.models.augmentation import AUGMENTATION
from elastictrainer.registry import EXPORT
from elastictrainer.runs.environment import silenced
from elastictrainer.runs.files import atomic_write, write_text
from elastictrainer.steps.keras_compat.layers import argmax, for_inference, save_for_serving

LABELS = "labels.txt"
PREPROCESSING = "preprocessing.txt"
SAVED_LABELS = f"assets.extra/{LABELS}"  # the folder that TensorFlow leaves to others
FULL_INT8 = "tflite-full-int8"


def deployed(model: tf.keras.Model, class_names: Sequence[str]) -> tf.keras.Model:
    """Build the model to serve: it gives probabilities and class names instead of logits.

    It takes raw pixels (batch, H, W, 3) in 0..255, as `model`, which gives logits (batch, classes). Its
    outputs are {"probabilities": (batch, classes) float32, "class": (batch,) strings}, and it shares its
    weights with `model`. UsageError where class names are not as many as outputs.
    """
    core = _logits(model, class_names)
    probabilities = tf.keras.layers.Softmax(name="probabilities", dtype="float32")(core.outputs[0])
    # The layer reserves index 0 for out-of-vocabulary values: label k has index k + 1.
    class_name = tf.keras.layers.StringLookup(
        vocabulary=list(class_names), num_oov_indices=1, invert=True, name="class"
    )
    outputs = {"probabilities": probabilities, "class": class_name(argmax(probabilities) + 1)}
    return tf.keras.Model(core.inputs[0], outputs, name="deployed")


def _logits(model: tf.keras.Model, class_names: Sequence[str]) -> tf.keras.Model:
    if model.output_shape[-1] != len(class_names):
        raise UsageError(
            f"the model has {model.output_shape[-1]} outputs, and there are {len(class_names)} class names."
        )
    return for_inference(model, AUGMENTATION)


def export(
    model: tf.keras.Model,
    class_names: Sequence[str],
    format: str,
    path: Union[str, Path],
    overwrite: bool = False,
    sample: Optional[np.ndarray] = None,
) -> None:
    """Write a trained model in one format.

    Args:
        model: from raw pixels (batch, H, W, 3) in 0..255 to logits (batch, classes).
        format: "saved_model" (a folder, with class names in assets.extra), "keras", "tflite" (float32),
            "tflite-int8" (8-bit weights; the runtime chooses float or integer arithmetic), or
            "tflite-full-int8" (integers only: one image of uint8 pixels to uint8, the probabilities times
            256). TFLite files give probabilities (batch, classes) and contain labels.txt and
            preprocessing.txt.
        path: the file or folder to write. After a failure what was there is there still.
        sample: training images (n, H, W, 3) uint8, for tflite-full-int8: they decide the ranges of integers.

    Raises:
        UsageError: unknown format, wrong number of class names, something at `path`, or no `sample`.
        RunError: the network has an operation that TensorFlow Lite has no integers for.
    """
    EXPORT.check(format)
    if format == FULL_INT8 and sample is None:
        raise UsageError(f"{FULL_INT8} needs training images to calibrate on: export(..., sample=images).")
    path, labels = Path(path), "\n".join(class_names) + "\n"
    require_free(path, overwrite)
    with atomic_write(path) as unfinished:
        if format == "saved_model":
            save_for_serving(deployed(model, class_names), str(unfinished))
            write_text(unfinished / SAVED_LABELS, labels)
        elif format == "keras":
            deployed(model, class_names).save(unfinished)
        else:
            unfinished.write_bytes(_tflite(_logits(model, class_names), format, sample))
            dtype = "uint8" if format == FULL_INT8 else "float32"
            with zipfile.ZipFile(unfinished, "a") as archive:  # the way TFLite's metadata tools attach files
                archive.writestr(LABELS, labels)
                archive.writestr(PREPROCESSING, describe_preprocessing(model.input_shape[1:3], dtype) + "\n")


def _tflite(core: tf.keras.Model, format: str, sample: Optional[np.ndarray]) -> bytes:
    probabilities = tf.keras.layers.Softmax(name="probabilities", dtype="float32")(core.outputs[0])
    with tempfile.TemporaryDirectory(prefix="elastictrainer-export-") as folder:
        save_for_serving(tf.keras.Model(core.inputs[0], probabilities), folder)
        if sample is not None and format == FULL_INT8:
            return _integers_only(folder, sample)
        converter = tf.lite.TFLiteConverter.from_saved_model(folder)
        if format == "tflite-int8":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        with silenced():  # the converter writes a list of operations
            return converter.convert()


def _integers_only(folder: str, sample: np.ndarray) -> bytes:
    """Convert a SavedModel so that a device without float arithmetic can run it."""
    loaded = tf.saved_model.load(folder)
    serve = loaded.signatures["serving_default"]
    (name,) = serve.structured_input_signature[1]
    pixels = tf.TensorSpec((1, *sample.shape[1:]), tf.float32)  # compilers for such devices need fixed sizes
    fixed = tf.function(lambda image: serve(**{name: image})).get_concrete_function(pixels)
    images = sample.astype(np.float32)
    images[0, 0, :2] = [[0], [255]]  # the range of all pixels: the scale is 1, the zero point 0
    converter = tf.lite.TFLiteConverter.from_concrete_functions([fixed], loaded)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: ([image[None]] for image in images)
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = converter.inference_output_type = tf.uint8
    try:
        with silenced():  # the converter writes a list of operations
            return converter.convert()
    except Exception as error:  # the converter and the quantiser raise many kinds
        raise RunError(
            f"TensorFlow Lite cannot compute this network in integers alone ({reason(error)}). "
            "Export it as tflite-int8."
        ) from None


def require_free(path: Path, overwrite: bool) -> None:
    """Raise UsageError if there is something at `path` that is not to be replaced."""
    if path.exists() and not overwrite:
        raise UsageError(f"{path} exists. Export to another place, or allow it to be replaced (--overwrite).")
