"""The names a user can choose from. Without TensorFlow, so that a mistyped name is an error at once."""

import importlib
import os
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Optional, Tuple

from elastictrainer.errors import UsageError, unknown


@dataclass(frozen=True)
class Choice:
    """The names of one kind.

    Attributes:
        kind: of the names, e.g. "model".
        names: the valid ones, in the order to print them.
        others: whether a value that is none of them is valid all the same: a file, a place in the user's
            code. None: no other is.
        hint: describes those, as a sentence.
        listed: the names to print; empty: all of them, separated by commas.
    """

    kind: str
    names: Tuple[str, ...]
    others: Optional[Callable[[str], bool]] = None
    hint: str = ""
    listed: str = ""

    def check(self, value: str) -> None:
        """Raise UsageError if `value` is not valid, with the nearest name that is."""
        if value not in self.names and not (self.others and self.others(value)):
            raise UsageError(f"{unknown(self.kind, value, self.names, self.listed)} {self.hint}".rstrip())

    def check_each(self, values: Iterable[str]) -> None:
        """Check several values, as `check` does."""
        for value in values:
            self.check(value)


# The networks of tf.keras.applications in lower case, by family. A test holds them against Keras 2 and 3;
# regnet and resnetrs are in Keras 2 alone.
KERAS_FAMILIES = {
    "convnext": ("tiny", "small", "base", "large", "xlarge"),
    "densenet": ("121", "169", "201"),
    "efficientnet": ("b0", "b1", "b2", "b3", "b4", "b5", "b6", "b7"),
    "efficientnetv2": ("b0", "b1", "b2", "b3", "s", "m", "l"),
    "inception": ("v3", "resnetv2"),
    "mobilenet": ("", "v2", "v3small", "v3large"),
    "nasnet": ("mobile", "large"),
    "regnetx": ("002", "004", "006", "008", "016", "032", "040", "064", "080", "120", "160", "320"),
    "regnety": ("002", "004", "006", "008", "016", "032", "040", "064", "080", "120", "160", "320"),
    "resnet": ("50", "101", "152", "50v2", "101v2", "152v2"),
    "resnetrs": ("50", "101", "152", "200", "270", "350", "420"),
    "vgg": ("16", "19"),
    "xception": ("",),
}
KERAS_NETWORKS = tuple(family + member for family, members in KERAS_FAMILIES.items() for member in members)
MODEL = Choice(
    "model",
    ("vit", "demo", *KERAS_NETWORKS),
    lambda value: value.endswith(".keras") or ":" in value,
    "Or a path/to/model.keras, or package.module:function.",
    "vit, demo, "
    + ", ".join(
        family + (f"{{{','.join(members)}}}" if len(members) > 1 else "")
        for family, members in KERAS_FAMILIES.items()
    ),
)
AUGMENT = Choice("augmentation", ("none", "flip", "standard", "strong", "paper"))
TFDS, HF = "tfds:", "hf:"  # before a name in tensorflow-datasets, or in Hugging Face's datasets
DATASET = Choice(
    "data set",
    ("caltech_birds2011", "oxford_iiit_pet", "stanford_dogs", "demo"),
    lambda value: os.path.exists(value) or (value.startswith((TFDS, HF)) and value not in (TFDS, HF)),
    "Or a folder with train/CLASS/IMAGE and test/CLASS/IMAGE, a .csv table, tfds:NAME of "
    "tensorflow-datasets, hf:NAME of Hugging Face's.",
)
HEAD_INIT = Choice("head initialisation", ("solve", "zeros", "glorot", "keep"))
HEAD = Choice("head", ("keep", "solve"))
OPTIMIZER = Choice("optimizer", ("sgd", "adam", "adamw"))
SCHEDULE = Choice("schedule", ("cosine", "constant"))
CLASS_WEIGHTS = Choice("class-weights", ("none", "balanced"))
FOLD = Choice("fold", ("on", "off"))
PRECISION = Choice("precision", ("auto", "float32", "bfloat16"))
ACTIVATION_CACHE = Choice("activation-cache", ("auto", "off"))
ACTIVATION_CACHE_DTYPE = Choice("activation-cache-dtype", ("float16", "float32"))
CACHE_IMAGES = Choice("cache-images", ("none", "memory"))
EXPORT_FILES = {  # by format
    "saved_model": "saved_model",
    "tflite": "model.tflite",
    "tflite-int8": "model-int8.tflite",
    "tflite-full-int8": "model-full-int8.tflite",
    "keras": "deployed.keras",
}
EXPORT = Choice("export format", tuple(EXPORT_FILES))


def check_places(option: str, places: Iterable[str]) -> None:
    """Raise UsageError, naming `option`, if one of `places` is no "package.module:name"; none is imported."""
    for place in places:
        module, _, attribute = place.partition(":")
        if not attribute.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
            raise UsageError(f"{option} {place!r} must be package.module:Class, or a function in its place.")


def import_object(option: str, place: str) -> Any:
    """Import the object at `place`, "package.module:attribute"; UsageError, naming `option`, without one."""
    module_name, _, attribute = place.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever the user's code raises
        hint = " Set PYTHONPATH?" if isinstance(error, ImportError) else ""
        why = error if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
        raise UsageError(f"cannot import {module_name} of {option} {place}: {why}.{hint}") from error
    try:
        return getattr(module, attribute)
    except AttributeError:
        raise UsageError(f"{module_name} has no {attribute!r} ({option} {place}).") from None
