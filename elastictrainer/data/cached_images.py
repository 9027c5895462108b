"""Decoded images kept in memory, where decoding them in every epoch costs more than room."""

from typing import Any, Callable, Dict, Iterable, Optional, Tuple

import numpy as np
import tensorflow as tf

from elastictrainer.data.splits import IndexedSplit, stored, unreadable
from elastictrainer.errors import DamagedImages, UsageError
from elastictrainer.registry import CACHE
from elastictrainer.runs.environment import memory_bytes


class CachedSplit(IndexedSplit):
    """A part of a data set, decoded and resized once, with pixels as whole numbers 0..255."""

    def __init__(self, split: Any, size: Tuple[int, int], workers: int):
        """
        Args:
            split: the images to keep; they are read once, in its stored order.
            size: height and width.
            workers: that decode.

        Raises:
            RunError: an image cannot be decoded.
        """
        self._split, self.size, self.labels = split, size, split.labels
        self._images = np.empty((split.count, *size, 3), np.uint8)
        try:
            for k, (image, _) in enumerate(stored(split, size, workers)):
                self._images[k] = np.rint(image.numpy()).clip(0, 255).astype(np.uint8)
        except tf.errors.OpError as error:
            raise unreadable(split, error) from None

    def reader(self, size: Tuple[int, int]) -> Callable[[tf.Tensor], tf.Tensor]:
        """Return a function from an image's number to the image."""

        def image(number: np.ndarray) -> np.ndarray:
            return self._images[number].astype(np.float32)

        return lambda number: tf.ensure_shape(tf.numpy_function(image, [number], tf.float32), (*self.size, 3))

    def find_corrupt(self) -> Optional[DamagedImages]:
        """Return the error that names the damaged image; None where it cannot be found."""
        return self._split.find_corrupt()

    def fingerprint(self) -> Dict[str, Any]:
        """Return the contents, in order, and the times of the files."""
        return self._split.fingerprint()


def require_cacheable(place: str, splits: Iterable[Any], size: Tuple[int, int]) -> None:
    """UsageError for an unknown place, images that are in memory already, or more than fit into it."""
    CACHE.check(place)
    if place == "none":
        return
    splits = list(splits)
    if not all(hasattr(split, "files") for split in splits):
        raise UsageError(
            "--cache is for images in files of their own (a folder, a .csv table); these are in memory, or "
            "in the files of a collection."
        )
    needed, there = sum(split.count for split in splits) * size[0] * size[1] * 3, memory_bytes()
    if there is not None and needed > there:
        raise UsageError(
            f"--cache memory: the decoded images take {needed / 1e9:.1f} GB, and this machine has "
            f"{there / 1e9:.1f} GB. Leave --cache out."
        )
