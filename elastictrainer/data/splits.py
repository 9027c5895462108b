"""One part of a data set: how its images come, in an order that can be repeated."""

from typing import Callable, Optional, Protocol, Tuple

import numpy as np
import tensorflow as tf


class Split(Protocol):
    """One part of a data set."""

    count: int

    def examples(
        self,
        seed: Optional[Tuple[int, int]],
        size: Tuple[int, int],
        workers: int,
        skip: int = 0,
        part: Tuple[int, int] = (0, 1),
    ) -> tf.data.Dataset:
        """(image (H, W, 3) float32 in 0..255, label int64) in an order drawn from `seed`, without the first `skip`; of those each
        n-th, from number k on, where `part` is (k, n).

        No seed: in the order they are stored in.
        """

    def culprit(self) -> str:
        """After a failed read: which image it was and what to do, or an empty string."""


class IndexedSplit:
    """A Split whose images can be had by number; a subclass says how.

    Attributes:
        labels: (n,) int.
    """

    labels: np.ndarray

    def reader(self, size: Tuple[int, int]) -> Callable[[tf.Tensor], tf.Tensor]:
        """A function for tf.data: from an image's number to the image as `Split.examples` gives it."""
        raise NotImplementedError

    @property
    def count(self) -> int:
        return len(self.labels)

    def examples(
        self,
        seed: Optional[Tuple[int, int]],
        size: Tuple[int, int],
        workers: int,
        skip: int = 0,
        part: Tuple[int, int] = (0, 1),
    ) -> tf.data.Dataset:
        """See Split; images that are left out are not even read."""
        order = np.arange(self.count) if seed is None else np.random.default_rng(seed).permutation(self.count)
        order = order[skip:][part[0] :: part[1]]
        read = self.reader(size)
        dataset = tf.data.Dataset.from_tensor_slices((order, self.labels[order]))
        return dataset.map(lambda number, label: (read(number), label), num_parallel_calls=workers)

    def culprit(self) -> str:
        return ""


def prepare_image(image: tf.Tensor, size: Tuple[int, int]) -> tf.Tensor:
    """An image of any size as (H, W, 3) float32 in 0..255."""
    return tf.ensure_shape(tf.image.resize(image, size), (*size, 3))
