"""A TFLite file as a function from images to probabilities, whatever numbers it computes with."""

import io
import re
import warnings
import zipfile
from pathlib import Path
from typing import Any, List, Optional, Sequence

import numpy as np
import tensorflow as tf

from elastictrainer.errors import UsageError, reason
from elastictrainer.models.export import LABELS
from elastictrainer.runs.environment import silenced


class TFLiteFile:
    """A network of one input and one output, in float32 or in integers of 8 bits with their scale.

    Attributes:
        class_names: by label; None where the file does not say.
        input_shape: (n, H, W, channels) with None for a dimension that it leaves open.
        rounding: how far the rounding to integers may put off the sum of an image's probabilities.
    """

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
        self.rounding = unit * classes if self._in_integers else 0.0

    def probabilities(self, images: np.ndarray) -> np.ndarray:
        """Return (n, classes) float32, of images (n, H, W, 3) float32 in 0..255."""
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
