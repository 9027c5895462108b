"""One part of a data set: how its images come, in an order that can be repeated."""

import copy
import hashlib
import itertools
import os
from dataclasses import dataclass
from typing import Any, Callable, Dict, Optional, Sequence, Tuple

import numpy as np
import tensorflow as tf

from elastictrainer.data import pictures
from elastictrainer.data.reading import Reading, unreadable_images
from elastictrainer.errors import DamagedImages, DataError, reason

Example = Tuple[tf.Tensor, tf.Tensor]  # image (H, W, 3) float32 in 0..255, label () int64
Size = pictures.Size


class Split:
    """One part of a data set. Its examples are put in order before they are decoded.

    Attributes:
        labels: (n,) int, in the stored order; they may have to be read.
    """

    labels: np.ndarray

    @property
    def count(self) -> int:
        """Return the number of examples."""
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
        """Return a function from a seed, (2,) int64, to the undecoded examples in that order; None: as
        stored.

        The function may be called inside another of tf.data's.
        """
        raise NotImplementedError

    def decoder(self, size: Size) -> Callable[[Any], Example]:
        """Return a function from an undecoded example to an image of `size` (height, width) and its label."""
        raise NotImplementedError

    def find_corrupt(self) -> Optional[DamagedImages]:
        """After a failed read, return the error that names the images; None where they cannot be found."""
        return None

    def fingerprint(self) -> Dict[str, Any]:
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
        return DamagedImages(unreadable_images(list(problems.values()), Reading.advice), files)


@dataclass
class ArraySplit(IndexedSplit):
    """Images in memory: (n, H, W, 3) in 0..255, and (n,) labels."""

    images: np.ndarray
    labels: np.ndarray

    def subset(self, chosen: np.ndarray) -> "ArraySplit":
        return ArraySplit(self.images[chosen], self.labels[chosen])

    def image(self, number: int, size: Size) -> np.ndarray:
        return pictures.resize(self.images[number], size)

    def fingerprint(self) -> Dict[str, Any]:
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


def labels_in(class_names: Sequence[str], own_names: Sequence[str]) -> np.ndarray:
    """Return (classes,) int64: the labels by `class_names` of a source's `own_names`, all of them there."""
    return np.array([list(class_names).index(name) for name in own_names], np.int64)


def in_graph(read: Callable[[Any], np.ndarray], size: Size) -> Callable[[tf.Tensor], tf.Tensor]:
    """Return a function that reads an image, (H, W, 3), as one of TensorFlow's, which returns float32."""

    def image(example: tf.Tensor) -> tf.Tensor:
        pixels = tf.numpy_function(lambda value: read(value).astype(np.float32), [example], tf.float32)
        return tf.ensure_shape(pixels, (*size, 3))

    return image


def decode_in_order(split: Split, size: Size, workers: int) -> tf.data.Dataset:
    """Return all examples of `split` in their stored order, decoded by `workers` threads."""
    return split.ordered()(None).map(split.decoder(size), num_parallel_calls=workers)


def decode_all(split: Split, size: Size, workers: int = 1) -> np.ndarray:
    """Decode all images of a split: (n, H, W, 3) uint8, in their stored order.

    Raises:
        DataError: one cannot be decoded.
    """
    images = np.empty((split.count, *size, 3), np.uint8)
    try:
        for k, (image, _) in enumerate(decode_in_order(split, size, workers)):
            images[k] = np.rint(image)
    except tf.errors.OpError as error:
        raise read_error(split, error) from None
    return images


def read_error(split: Split, error: Exception) -> DataError:
    """Return the error to raise where reading `split` failed with `error`: it names the image if it can."""
    return split.find_corrupt() or DataError(f"reading the images failed: {reason(error)}")
