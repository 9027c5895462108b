"""The parts of a data set: how images come, in an order that can be repeated, and what is set apart."""

import copy
import hashlib
import itertools
import os
import unicodedata
from dataclasses import dataclass
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Tuple, TypeVar

import numpy as np
import tensorflow as tf

from elastictrainer.data import pictures
from elastictrainer.data.pictures import Size
from elastictrainer.errors import DamagedImages, DataError, UsageError, abbreviated, reason
from elastictrainer.runs.environment import processors

PARTS = {"train": "training", "val": "validation", "test": "test"}  # with a word for each
UNSPLIT = "all"  # the only part of data that comes without any
# How a user's folder or column may call the part that chooses the best weights.
VALIDATION_NAMES = ("val", "valid", "validation")
REPLACE = "Replace or delete them."  # advice about damaged images
REPLACE_BEGUN = "Replace them under their names; without them, begin a new run."

Contents = Dict[str, object]  # what identifies the images of a part
Example = Tuple[tf.Tensor, tf.Tensor]  # image (H, W, 3) float32 in 0..255, label () int64


class Split:
    """One part of a data set. Its examples are put in order before they are decoded.

    `labels`, (n,) int, are in the stored order; they may have to be read.
    """

    labels: np.ndarray

    @property
    def count(self) -> int:
        return len(self.labels)

    def name_of(self, number: int) -> str:
        """Return a name for an image: its file, or its number in the stored order."""
        return str(number)

    def subset(self, chosen: np.ndarray) -> "Split":
        """Return the examples that `chosen`, (n,) bool, marks, in their stored order."""
        raise NotImplementedError

    def relabelled(self, label_of: np.ndarray) -> "Split":
        """Return the same images with labels replaced: `label_of`, (classes,) int64, by those of now."""
        raise NotImplementedError

    def ordered(self) -> Callable[[Optional[tf.Tensor]], tf.data.Dataset]:
        """Return the function from a seed, (2,) int64, to undecoded examples in its order; None: stored."""
        raise NotImplementedError

    def decoder(self, size: Size) -> Callable[[Any], Example]:
        """Return a function from an undecoded example to an image of `size` (height, width) and its label."""
        raise NotImplementedError

    def find_corrupt(self) -> Optional[DamagedImages]:
        """After a failed read, return the error that names the images; None where they cannot be found."""
        return None

    def fingerprint(self) -> Contents:
        """Return what identifies the split: its `contents`, in order.

        Files that may be replaced have `names` too: the contents without what that changes.
        """
        raise NotImplementedError


class IndexedSplit(Split):
    """A Split whose images can be read by number. Images that are left out are not read."""

    def image(self, number: int, size: Size) -> np.ndarray:
        """Read an image: (H, W, 3) numbers in 0..255, of `size` (height, width)."""
        raise NotImplementedError

    def relabelled(self, label_of: np.ndarray) -> "IndexedSplit":
        same = copy.copy(self)
        same.labels = label_of[self.labels]
        return same

    def ordered(self) -> Callable[[Optional[tf.Tensor]], tf.data.Dataset]:
        def numbers(seed: Optional[tf.Tensor]) -> tf.data.Dataset:
            order = tf.range(self.count)
            if seed is not None:
                order = tf.random.experimental.stateless_shuffle(order, seed)
            return tf.data.Dataset.from_tensor_slices(order)

        return numbers

    def decoder(self, size: Size) -> Callable[[Any], Example]:
        labels = tf.constant(self.labels, tf.int64)
        read = in_graph(lambda number: self.image(int(number), size), size)
        return lambda number: (read(number), labels[number])

    def find_corrupt(self) -> Optional[DamagedImages]:
        """Name the damaged images, after decoding every image of the split."""
        problems = {}
        for number in range(self.count):
            try:
                self.image(number, (1, 1))
            except Exception as error:  # Pillow raises many kinds
                name = self.name_of(number)
                problems[name] = f"{name} ({pictures.cause(error)})"
        if not problems:
            return None
        files = [name for name in problems if os.path.exists(name)]
        return DamagedImages(unreadable_images(list(problems.values()), REPLACE_BEGUN), files)


@dataclass
class ArraySplit(IndexedSplit):
    """Images in memory: (n, H, W, 3) in 0..255, and (n,) labels."""

    images: np.ndarray
    labels: np.ndarray

    def subset(self, chosen: np.ndarray) -> "ArraySplit":
        return ArraySplit(self.images[chosen], self.labels[chosen])

    def image(self, number: int, size: Size) -> np.ndarray:
        return pictures.resize(self.images[number], size)

    def fingerprint(self) -> Contents:
        pixels = hashlib.sha256(np.ascontiguousarray(self.images).data).hexdigest()
        return {"contents": (pixels, self.images.shape, self.labels.tolist())}


class JoinedSplit(IndexedSplit):
    """The images of several splits, one after the other, with the labels that they have there."""

    def __init__(self, splits: Sequence[Any]):
        """`splits` are the sources, each an IndexedSplit."""
        self.splits = splits
        self.labels = np.concatenate([split.labels for split in splits])
        self._sources = [(split, number) for split in splits for number in range(split.count)]

    def name_of(self, number: int) -> str:
        split, own_number = self._sources[number]
        return split.name_of(own_number)

    def subset(self, chosen: np.ndarray) -> "JoinedSplit":
        part = copy.copy(self)
        part.labels = self.labels[chosen]
        part._sources = list(itertools.compress(self._sources, chosen))
        return part

    def image(self, number: int, size: Size) -> np.ndarray:
        split, own_number = self._sources[number]
        return split.image(own_number, size)


def unreadable_images(problems: Sequence[str], advice: str) -> str:
    return f"{len(problems)} unreadable image(s): {abbreviated(problems)}. {advice}"


def as_class_name(text: str) -> str:
    """Return a class name in one form: systems write a letter with an accent as one character or as two."""
    return unicodedata.normalize("NFC", text)


def labels_in(class_names: Sequence[str], own_names: Sequence[str]) -> np.ndarray:
    """Return (classes,) int64: the labels by `class_names` of a source's `own_names`, all of them there."""
    return np.array([list(class_names).index(name) for name in own_names], np.int64)


def in_graph(read: Callable[[Any], np.ndarray], size: Size) -> Callable[[tf.Tensor], tf.Tensor]:
    """Return a function that reads an image, (H, W, 3), as one of TensorFlow's, which returns float32."""

    def image(example: tf.Tensor) -> tf.Tensor:
        pixels = tf.numpy_function(lambda value: read(value).astype(np.float32), [example], tf.float32)
        return tf.ensure_shape(pixels, (*size, 3))

    return image


def decode_in_order(split: Split, size: Size) -> tf.data.Dataset:
    """Return all examples of `split` in their stored order, decoded."""
    return split.ordered()(None).map(split.decoder(size), num_parallel_calls=processors())


def decode_all(split: Split, size: Size) -> np.ndarray:
    """Decode all images, in their stored order: (n, H, W, 3) uint8; DataError where one cannot be decoded."""
    images = np.empty((split.count, *size, 3), np.uint8)
    try:
        for k, (image, _) in enumerate(decode_in_order(split, size)):
            images[k] = np.rint(image)
    except tf.errors.OpError as error:
        raise read_error(split, error) from None
    return images


def read_error(split: Split, error: Exception) -> DataError:
    """Return the error to raise where reading `split` failed with `error`: it names the image if it can."""
    return split.find_corrupt() or DataError(f"reading the images failed: {reason(error)}")


Part = TypeVar("Part")


def name_parts(name: str, splits: Mapping[str, Part]) -> Dict[str, Part]:
    """Return the parts of a collection by what is usual there; without a test, its validation is that.

    UsageError, with the data's `name`, where there is no split train, or two of validation.
    """
    if "train" not in splits:
        raise UsageError(f"{name} has the splits {', '.join(splits)}; train is needed.")
    validation = [split for split in VALIDATION_NAMES if split in splits]
    if len(validation) > 1:
        raise UsageError(f"{name} has the splits {' and '.join(validation)}; one validation part is used.")
    names = {"train": "train", "test": "test"}
    names.update(dict.fromkeys(validation, "val" if "test" in splits else "test"))
    return {part: splits[split] for split, part in names.items() if split in splits}


def split_dataset(
    name: str,
    class_names: Sequence[str],
    parts: Dict[str, Split],
    test_split: Optional[float] = None,
    validation_split: Optional[float] = None,
    seed: int = 0,
) -> Dict[str, Split]:
    """Split a data set into the parts train, val where there is one or it was asked for, and test.

    Data without a test part gets one: of `test_split`, or of `validation_split` where that alone is given.
    Both are shares of every class, the latter of the training images; what is set apart depends on `seed`.
    UsageError for a share of a part that there is, none of a missing test part, or too few images.
    """
    parts = dict(parts)
    if "test" in parts:
        if test_split is not None:
            raise UsageError(f"{name} has a test part of its own: leave out --test-split.")
    else:
        fraction, option = test_split, "--test-split"
        if fraction is None and "val" not in parts:
            fraction, option, validation_split = validation_split, "--validation-split", None
        if fraction is None:
            raise UsageError(
                f"{name} has no test part: --test-split 0.2 sets a fifth of every class apart for testing."
            )
        whole = parts.pop(UNSPLIT, None) or parts["train"]
        parts["train"], parts["test"] = _set_apart(whole, class_names, fraction, seed, option)
    if validation_split is not None:
        if "val" in parts:
            raise UsageError(f"{name} has a validation part of its own: leave out --validation-split.")
        parts["train"], parts["val"] = _set_apart(
            parts["train"], class_names, validation_split, seed, "--validation-split"
        )
    return {part: parts[part] for part in PARTS if part in parts}


def _set_apart(
    split: Split, class_names: Sequence[str], fraction: float, seed: int, option: str
) -> Tuple[Split, Split]:
    """Draw `fraction` (0 to 1) of every class, at least one example and never all; return rest and drawn.

    The same `seed` and labels draw the same. UsageError, naming the `option` that asked for it, for a class
    of fewer than two examples.
    """
    random = np.random.default_rng([seed, split.count])
    apart = np.zeros(split.count, bool)
    for label, name in enumerate(class_names):
        members = np.flatnonzero(split.labels == label)
        if len(members) < 2:
            raise UsageError(
                f"class {name!r} has {len(members)} image(s); {option} needs at least two of each."
            )
        wanted = min(max(1, round(fraction * len(members))), len(members) - 1)
        apart[random.choice(members, wanted, replace=False)] = True
    return split.subset(~apart), split.subset(apart)


def stratified_places(labels: np.ndarray, seed: int) -> np.ndarray:
    """Return (n,) int: the place of each example in an order that mixes the classes evenly.

    The first of them, however many, are a random sample with the same share of every class, as near as whole
    numbers come. The same seed and labels, (n,) int, give the same order.
    """
    mixed = np.random.default_rng([seed, len(labels)]).permutation(len(labels))
    by_class = mixed[np.argsort(labels[mixed], kind="stable")]  # class after class, each in a random order
    _, begins, counts = np.unique(labels[by_class], return_index=True, return_counts=True)
    within = (np.arange(len(labels)) - np.repeat(begins, counts) + 0.5) / np.repeat(counts, counts)
    key, places = np.empty(len(labels)), np.empty(len(labels), int)
    key[by_class] = within
    places[mixed[np.argsort(key[mixed], kind="stable")]] = np.arange(len(labels))  # a tie: at random
    return places
