"""A trained classifier from a file, whatever its format: images in, probabilities out."""

import functools
import io
import re
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, List, Optional, Sequence, Tuple, Union

import numpy as np
import tensorflow as tf

from elastictrainer.data.splits import as_class_name
from elastictrainer.errors import UsageError, reason
from elastictrainer.models import user_models
from elastictrainer.models.export import LABELS
from elastictrainer.runs.environment import silenced
from elastictrainer.runs.run_folder import RunFolder
from elastictrainer.steps.folding import FoldedModel
from elastictrainer.steps.keras_compat.layers import compute_in_float32

_SUM_OFF = 1e-3  # of probabilities, 8-bit weights included


@dataclass(frozen=True)
class Predictor:
    """A classifier."""

    source: Path  # the file or folder that it is from
    probabilities: Callable[[np.ndarray], np.ndarray]  # of images (n, H, W, 3) in 0..255: (n, classes)
    input_shape: Sequence[Optional[int]]  # (n, H, W, 3) with None for a dimension that it leaves open
    class_names: Optional[Sequence[str]] = None  # by label; None where the file does not say
    sum_off: float = _SUM_OFF  # how far the sum of an image's probabilities may be from 1

    def __post_init__(self) -> None:
        if len(self.input_shape) != 4 or self.input_shape[-1] not in (3, None):
            raise UsageError(
                f"{self.source} takes inputs of shape {tuple(self.input_shape)}, not pictures in colour."
            )
        if self.class_names is not None:  # as those of data are
            object.__setattr__(self, "class_names", list(map(as_class_name, self.class_names)))

    @property
    def image_size(self) -> Tuple[Optional[int], Optional[int]]:
        """Return height and width in pixels that it takes; None for one that it leaves open."""
        return self.input_shape[1], self.input_shape[2]

    def __call__(self, images: np.ndarray) -> np.ndarray:
        """Return (n, classes) float32, of images (n, H, W, 3) float32 in 0..255.

        Rows sum to 1, but for the rounding of a file that computes with integers.
        """
        found = np.asarray(self.probabilities(images), np.float32)
        if found.ndim == 2 and not np.isfinite(found).all():
            raise UsageError(
                f"{self.source} gives NaN or infinite numbers: its weights are damaged, or its format has "
                "too small a range."
            )
        if found.ndim != 2 or (found < 0).any() or (abs(found.sum(axis=1) - 1) > self.sum_off).any():
            raise UsageError(
                f"{self.source} does not give probabilities of classes. Export the model with et-export."
            )
        return found

    def names(self, count: int) -> Sequence[str]:
        """Return the names of its `count` classes, or their numbers where the file has none."""
        return self.class_names or [str(k) for k in range(count)]


def load(target: Union[str, Path], weights: Optional[str] = None, trust: bool = False) -> Predictor:
    """Load the classifier of a run, or of a file in a format that `et-train` or `et-export` writes.

    `weights` of a run are "best" or "last"; None: the best where there are such. With `trust` also what can
    run code is read: see `user_models.read`; TFLite files with TensorFlow's ops. UsageError where there is
    none, it is damaged, it would need `trust`, or it classifies no pictures.
    """
    path = Path(target)
    is_run = (path / "config.yaml").is_file()
    if weights is not None and not is_run:
        raise UsageError(f"--weights {weights} goes with a run folder, and {path} is none.")
    if is_run:
        path = RunFolder(path).weights_path(weights)
    if path.suffix == ".keras":
        return _keras(path, trust)
    if (path / "saved_model.pb").is_file():
        raise UsageError(
            f"{path} is a SavedModel, which is for other programs: pass the run folder, or export the run as "
            "keras or tflite (et-export)."
        )
    if path.suffix == ".tflite":
        file = TFLiteFile(path, trust)
        sum_off = _SUM_OFF + file.rounding
        return Predictor(path, file.probabilities, file.input_shape, file.class_names, sum_off)
    what = "is none of these" if path.exists() else "does not exist"
    raise UsageError(f"{path} {what}: a run folder, a .keras file, a .tflite file.")


def _keras(path: Path, trust: bool) -> Predictor:
    model = user_models.read(path, trust)
    compute_in_float32(model)
    names: Optional[Sequence[str]] = None
    outputs = model.output_shape
    is_deployed = {"probabilities", "class"} <= {layer.name for layer in model.layers}  # `export.deployed`
    if is_deployed:
        lookup = (x for x in model.layers if isinstance(x, tf.keras.layers.StringLookup))
        names = next((x.get_vocabulary()[1:] for x in lookup), None)
        activation = "softmax"
    elif isinstance(outputs, tuple) and len(outputs) == 2:
        activation = user_models.last_activation(model)
        if activation == "sigmoid" or outputs[-1] == 1:
            raise UsageError(
                f"{path} has one output, or a sigmoid at its end; needed: a logit or a probability for each "
                "of two classes or more, of which an image has one."
            )
        names = _names_next_to(path, outputs[-1])
    else:
        raise UsageError(f"{path} gives outputs of shape {outputs}, not one number for each class.")

    folded = FoldedModel(model)

    @functools.partial(tf.function, reduce_retracing=True)
    def probabilities(x: tf.Tensor) -> tf.Tensor:
        y = folded(x, training=False)
        y = y["probabilities"] if is_deployed else y
        return y if activation == "softmax" else tf.nn.softmax(y)

    return Predictor(
        path, lambda images: probabilities(tf.constant(images)).numpy(), model.input_shape, names
    )


def _names_next_to(path: Path, count: Optional[int]) -> Optional[Sequence[str]]:
    """Return the class names of the run in whose folder a model lies; None where it lies in none."""
    run = RunFolder(path.parent)
    names = run.class_names() if run.config_path.is_file() else []
    return names if names and len(names) == count else None


class TFLiteFile:
    """A network of one input and one output, in float32 or in integers of 8 bits with their scale."""

    def __init__(self, path: Path, trust: bool):
        """Read a file; UsageError where it is damaged, needs `trust`, or computes with other numbers."""
        try:
            content = path.read_bytes()
            foreign = [name for name in _custom_ops(content) if name.startswith("Flex")]
            if foreign and not trust:
                raise UsageError(
                    f"{path} has the op {foreign[0]} of TensorFlow's, which can be any: some read and "
                    "write files. If you trust where the file is from: --trust-model."
                )
            with warnings.catch_warnings(), silenced():
                warnings.simplefilter("ignore")  # TensorFlow announces another package for it
                self._interpreter = tf.lite.Interpreter(model_content=content)
                self._interpreter.allocate_tensors()
            (self._input,) = self._interpreter.get_input_details()
            (self._output,) = self._interpreter.get_output_details()
            self.class_names = _names_inside(content)
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}.") from None
        except UsageError:
            raise
        except (ValueError, RuntimeError) as error:
            raise UsageError(f"TensorFlow Lite cannot load {path}: {reason(error)}") from None
        ends = (self._input, self._output)
        dtypes = {end["dtype"] for end in ends}
        self._in_integers = dtypes <= {np.uint8, np.int8} and all(end["quantization"][0] for end in ends)
        if not self._in_integers and dtypes != {np.float32}:
            given, got = (np.dtype(end["dtype"]) for end in ends)
            raise UsageError(
                f"{path} takes {given} and gives {got}; float32 is needed, or integers of 8 bits with their "
                "scale."
            )
        self.input_shape = [None if size < 0 else int(size) for size in self._input["shape_signature"]]
        unit, classes = self._output["quantization"][0], int(self._output["shape"][-1])
        # How far this may put off the sum of an image's probabilities.
        self.rounding = unit * classes if self._in_integers else 0.0

    def probabilities(self, images: np.ndarray) -> np.ndarray:
        return np.stack([self._of_one(image[None]) for image in images])

    def _of_one(self, image: np.ndarray) -> np.ndarray:
        if self._in_integers:
            scale, zero = self._input["quantization"]
            allowed = np.iinfo(self._input["dtype"])
            image = np.rint(image / scale + zero).clip(allowed.min, allowed.max).astype(allowed.dtype)
        interpreter: Any = self._interpreter
        if tuple(interpreter.get_input_details()[0]["shape"]) != image.shape:
            interpreter.resize_tensor_input(self._input["index"], image.shape)
            interpreter.allocate_tensors()
        interpreter.set_tensor(self._input["index"], image)
        interpreter.invoke()
        result = interpreter.get_tensor(self._output["index"])[0]
        if self._in_integers:
            scale, zero = self._output["quantization"]
            result = (result.astype(np.float32) - zero) * scale
        return result


def _custom_ops(content: bytes) -> List[str]:
    """Return the names of a TFLite model's ops that are not TFLite's own; ValueError where it is damaged.

    The interpreter follows whatever offsets are in a file, and would end the process.
    """
    from tensorflow.lite.tools import flatbuffer_utils

    if content[4:8] != b"TFL3":
        raise ValueError("no TFLite model")
    try:
        model = flatbuffer_utils.convert_bytearray_to_object(bytearray(content))
        return [code.customCode.decode() for code in model.operatorCodes if code.customCode]
    except Exception as error:  # all kinds, by the place that leads nowhere
        raise ValueError(f"the file is damaged ({type(error).__name__})") from None


def _names_inside(content: bytes) -> Optional[Sequence[str]]:
    """Return the class names in a TFLite file; None where it has none, ValueError where it was cut."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return archive.read(LABELS).decode().splitlines()
    except (zipfile.BadZipFile, KeyError, UnicodeDecodeError):
        # An archive is read from its end: of one that was cut the file's own header is left.
        if re.search(rb"PK\x03\x04.{26}" + re.escape(LABELS.encode()), content, re.DOTALL):
            raise ValueError("the file is damaged: its class names cannot be read") from None
        return None
