"""A trained classifier from a file, whatever its format: images in, probabilities out."""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Optional, Sequence, Tuple, Union

import numpy as np
import tensorflow as tf

from elastictrainer.errors import UsageError, reason
from elastictrainer.models import model_file
from elastictrainer.models.export import SAVED_LABELS, SAVED_SIGNATURE
from elastictrainer.models.tflite_file import TFLiteFile
from elastictrainer.models.user_models import last_activation
from elastictrainer.runs import ownership
from elastictrainer.runs.files import without_wildcards
from elastictrainer.runs.run_folder import RunFolder
from elastictrainer.steps.keras_compat.layers import compute_in_float32

_SUM_OFF = 1e-3  # of probabilities, 8-bit weights included
_FORMATS = "a run folder, a .keras file, a SavedModel folder, a .tflite file"


@dataclass(frozen=True)
class Predictor:
    """A classifier.

    Attributes:
        source: the file or folder that it is from.
        probabilities: from images (n, H, W, 3) float32 in 0..255 to (n, classes).
        input_shape: (n, H, W, 3) with None for a dimension that it leaves open.
        class_names: by label; None where the file does not say.
        sum_off: how far the sum of an image's probabilities may be from 1.
    """

    source: Path
    probabilities: Callable[[np.ndarray], np.ndarray]
    input_shape: Sequence[Optional[int]]
    class_names: Optional[Sequence[str]] = None
    sum_off: float = _SUM_OFF

    def __post_init__(self) -> None:
        if len(self.input_shape) != 4 or self.input_shape[-1] not in (3, None):
            raise UsageError(
                f"{self.source} takes inputs of shape {tuple(self.input_shape)}, not pictures in colour."
            )

    @property
    def image_size(self) -> Tuple[Optional[int], Optional[int]]:
        """Return height and width in pixels that it takes; None for one that it leaves open."""
        return self.input_shape[1], self.input_shape[2]

    def __call__(self, images: np.ndarray) -> np.ndarray:
        """Return (n, classes) float32, of images (n, H, W, 3) float32 in 0..255.

        Rows sum to 1, but for the rounding of a file that computes with integers.
        """
        found = np.asarray(self.probabilities(images), np.float32)
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

    Args:
        target: a run folder, a Keras file, a SavedModel folder, a TFLite file.
        weights: of a run, "best" or "last"; None: the best where there are such.
        trust: also read what can run code: see `model_file.read`; a SavedModel that this user did not export
            on this machine; TFLite files with TensorFlow's ops.

    Raises:
        UsageError: there is none, it is damaged, it would need `trust`, or it classifies no pictures.
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
        return _saved_model(path, trust)
    if path.suffix == ".tflite":
        file = TFLiteFile(path, trust)
        sum_off = _SUM_OFF + file.rounding
        return Predictor(path, file.probabilities, file.input_shape, file.class_names, sum_off)
    what = "is none of these" if path.exists() else "does not exist"
    raise UsageError(f"{path} {what}: {_FORMATS}.")


def _keras(path: Path, trust: bool) -> Predictor:
    model = model_file.read(path, trust)
    compute_in_float32(model)
    names: Optional[Sequence[str]] = None
    outputs = model.output_shape
    is_deployed = {"probabilities", "class"} <= {layer.name for layer in model.layers}  # `export.deployed`
    if is_deployed:
        lookup = (x for x in model.layers if isinstance(x, tf.keras.layers.StringLookup))
        names = next((x.get_vocabulary()[1:] for x in lookup), None)
        activation = "softmax"
    elif isinstance(outputs, tuple) and len(outputs) == 2:
        activation = last_activation(model)
        if activation == "sigmoid" or outputs[-1] == 1:
            raise UsageError(
                f"{path} has one output, or a sigmoid at its end; needed: a logit or a probability for each "
                "of two classes or more, of which an image has one."
            )
        names = _names_next_to(path, outputs[-1])
    else:
        raise UsageError(f"{path} gives outputs of shape {outputs}, not one number for each class.")

    @functools.partial(tf.function, reduce_retracing=True)
    def probabilities(x: tf.Tensor) -> tf.Tensor:
        y = model(x, training=False)
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


def _saved_model(path: Path, trust: bool) -> Predictor:
    if not trust and not _is_own_export(path):
        raise UsageError(
            f"{path} is a program, which can read and write files, and was not exported by you on this "
            "machine, or was changed since. If you trust where it is from: --trust-model."
        )
    try:
        with without_wildcards(path) as readable:
            loaded: Any = tf.saved_model.load(str(readable))
        serve = loaded.signatures["serving_default"]
    except Exception as error:  # TensorFlow raises many kinds for a damaged folder
        raise UsageError(f"TensorFlow cannot load {path}: {reason(error)}") from None
    (name, spec), *others = serve.structured_input_signature[1].items()
    if others:
        raise UsageError(f"{path} takes {1 + len(others)} inputs, not pictures alone.")
    output = "probabilities" if "probabilities" in serve.structured_outputs else None
    output = output or next(iter(serve.structured_outputs))

    def probabilities(images: np.ndarray) -> np.ndarray:
        _keep = loaded  # its variables live as long as it does
        return serve(**{name: tf.constant(images)})[output].numpy()

    labels = path / SAVED_LABELS
    names = labels.read_text(encoding="utf-8").splitlines() if labels.is_file() else None
    return Predictor(path, probabilities, spec.shape.as_list(), names)


def _is_own_export(path: Path) -> bool:
    signature = path / SAVED_SIGNATURE
    if not signature.is_file():
        return False
    signed = signature.read_text(encoding="utf-8", errors="replace").strip()
    return ownership.is_own((path / "saved_model.pb").read_bytes(), signed)
