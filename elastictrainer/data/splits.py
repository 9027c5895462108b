"""One part of a data set: how its images come, in an order that can be repeated."""

import hashlib
from dataclasses import dataclass
from typing import Any, Callable, Dict, Optional, Protocol, Tuple

import numpy as np
import tensorflow as tf

from elastictrainer.data.resizing import resized
from elastictrainer.errors import DamagedImages, DataError, reason

Example = Tuple[tf.Tensor, tf.Tensor]  # image (H, W, 3) float32 in 0..255, label () int64


class Split(Protocol):
    """One part of a data set. Its examples are put in order before they are decoded."""

    @property
    def count(self) -> int:
        """Return the number of examples."""

    def ordered(self) -> Callable[[Optional[tf.Tensor]], tf.data.Dataset]:
        """Return a function from a seed, (2,) int64, to the undecoded examples in that order; None: as
        stored.

        The function may be called inside another of tf.data's.
        """

    def decoder(self, size: Tuple[int, int]) -> Callable[[Any], Example]:
        """Return a function from an undecoded example to an image of `size` (height, width) and its label."""

    @property
    def labels(self) -> np.ndarray:
        """Return (count,) int, in the stored order; they may have to be read."""

    def find_corrupt(self) -> Optional[DamagedImages]:
        """After a failed read, return the error that names the image; None where it cannot be found."""

    def fingerprint(self) -> Dict[str, Any]:
        """Return the `contents`, in order, and the `times` of the files, which identify the split."""


class Divisible(Split, Protocol):
    """A Split that can be divided further."""

    def subset(self, chosen: np.ndarray) -> "Divisible":
        """Return the examples that `chosen`, (n,) bool, marks, in their stored order."""


class IndexedSplit:
    """A Split whose images can be had by number; a subclass says how. Images that are left out are not read.

    Attributes:
        labels: (n,) int.
    """

    labels: np.ndarray

    def reader(self, size: Tuple[int, int]) -> Callable[[tf.Tensor], tf.Tensor]:
        """Return a function from an image's number to the image, (H, W, 3) float32 in 0..255."""
        raise NotImplementedError

    @property
    def count(self) -> int:
        """Return the number of examples."""
        return len(self.labels)

    def ordered(self) -> Callable[[Optional[tf.Tensor]], tf.data.Dataset]:
        """Return a function from a seed to the undecoded examples in that order."""

        def numbers(seed: Optional[tf.Tensor]) -> tf.data.Dataset:
            order = tf.range(self.count)
            if seed is not None:
                order = tf.random.experimental.stateless_shuffle(order, seed)
            return tf.data.Dataset.from_tensor_slices(order)

        return numbers

    def decoder(self, size: Tuple[int, int]) -> Callable[[Any], Example]:
        """Return a function from an undecoded example to its image and label."""
        read, labels = self.reader(size), tf.constant(self.labels, tf.int64)
        return lambda number: (read(number), labels[number])

    def find_corrupt(self) -> Optional[DamagedImages]:
        """Return the error that names the damaged image; None where it cannot be found."""
        return None


@dataclass
class ArraySplit(IndexedSplit):
    """Images in memory: (n, H, W, 3) in 0..255, and (n,) labels."""

    images: np.ndarray
    labels: np.ndarray

    def subset(self, chosen: np.ndarray) -> "ArraySplit":
        """Return the examples that `chosen`, (n,) bool, marks."""
        return ArraySplit(self.images[chosen], self.labels[chosen])

    def reader(self, size: Tuple[int, int]) -> Callable[[tf.Tensor], tf.Tensor]:
        """Return a function from an image's number to the image."""
        images = tf.constant(self.images)
        return lambda number: resized(images[number], size)

    def fingerprint(self) -> Dict[str, Any]:
        """Return the contents, in order, and the times of the files."""
        pixels = hashlib.sha256(np.ascontiguousarray(self.images).data).hexdigest()
        return {"contents": (pixels, self.images.shape, self.labels.tolist()), "times": ()}


def stored(split: Split, size: Tuple[int, int], workers: int) -> tf.data.Dataset:
    """Return all examples of `split` in their stored order, decoded by `workers` threads."""
    return split.ordered()(None).map(split.decoder(size), num_parallel_calls=workers)


def unreadable(split: Split, error: Exception) -> DataError:
    """Return the error to raise where reading `split` failed with `error`: it names the image if it can."""
    return split.find_corrupt() or DataError(f"reading the images failed: {reason(error)}")
