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
        """How many examples there are."""

    def ordered(self) -> Callable[[Optional[tf.Tensor]], tf.data.Dataset]:
        """From a seed, (2,) int64, to the undecoded examples in the order drawn from it; None: as stored.

        The function may be called inside another of tf.data's.
        """

    def decoder(self, size: Tuple[int, int]) -> Callable[[Any], Example]:
        """From an undecoded example to an image of `size` (height, width) and its label."""

    @property
    def labels(self) -> np.ndarray:
        """(count,) int, in the stored order; they may have to be read."""

    def find_corrupt(self) -> Optional[DamagedImages]:
        """After a failed read: the error that says which image it was; None where it cannot be found."""

    def fingerprint(self) -> Dict[str, Any]:
        """What tells it from another: its `contents`, in order, and the `times` of its files."""


class Divisible(Split, Protocol):
    """A Split that can be divided further."""

    def subset(self, chosen: np.ndarray) -> "Divisible":
        """The examples that `chosen`, (n,) bool, marks, in their stored order."""


class IndexedSplit:
    """A Split whose images can be had by number; a subclass says how. Images that are left out are not read.

    Attributes:
        labels: (n,) int.
    """

    labels: np.ndarray

    def reader(self, size: Tuple[int, int]) -> Callable[[tf.Tensor], tf.Tensor]:
        """From an image's number to the image, (H, W, 3) float32 in 0..255."""
        raise NotImplementedError

    @property
    def count(self) -> int:
        """How many images there are."""
        return len(self.labels)

    def ordered(self) -> Callable[[Optional[tf.Tensor]], tf.data.Dataset]:
        """See `Split`."""

        def numbers(seed: Optional[tf.Tensor]) -> tf.data.Dataset:
            order = tf.range(self.count)
            if seed is not None:
                order = tf.random.experimental.stateless_shuffle(order, seed)
            return tf.data.Dataset.from_tensor_slices(order)

        return numbers

    def decoder(self, size: Tuple[int, int]) -> Callable[[Any], Example]:
        """See `Split`."""
        read, labels = self.reader(size), tf.constant(self.labels, tf.int64)
        return lambda number: (read(number), labels[number])

    def find_corrupt(self) -> Optional[DamagedImages]:
        """See `Split`."""
        return None


@dataclass
class ArraySplit(IndexedSplit):
    """Images in memory: (n, H, W, 3) in 0..255, and (n,) labels."""

    images: np.ndarray
    labels: np.ndarray

    def subset(self, chosen: np.ndarray) -> "ArraySplit":
        """See `Divisible`."""
        return ArraySplit(self.images[chosen], self.labels[chosen])

    def reader(self, size: Tuple[int, int]) -> Callable[[tf.Tensor], tf.Tensor]:
        """See `IndexedSplit`."""
        images = tf.constant(self.images)
        return lambda number: resized(images[number], size)

    def fingerprint(self) -> Dict[str, Any]:
        """See `Split`."""
        pixels = hashlib.sha256(np.ascontiguousarray(self.images).data).hexdigest()
        return {"contents": (pixels, self.images.shape, self.labels.tolist()), "times": ()}


def stored(split: Split, size: Tuple[int, int], workers: int) -> tf.data.Dataset:
    """All examples of `split` in their stored order, decoded by `workers` threads."""
    return split.ordered()(None).map(split.decoder(size), num_parallel_calls=workers)


def unreadable(split: Split, error: Exception) -> DataError:
    """Return the error to raise where reading `split` failed with `error`: it names the image if it can."""
    return split.find_corrupt() or DataError(f"reading the images failed: {reason(error)}")
