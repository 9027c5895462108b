"""Decoded images kept in memory or in a file, where decoding them in every epoch costs more than room."""

import hashlib
import os
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, Optional, Tuple

import numpy as np
import tensorflow as tf

from elastictrainer.data.resizing import preprocessing
from elastictrainer.data.splits import IndexedSplit, stored, unreadable
from elastictrainer.errors import DamagedImages, RunError, UsageError
from elastictrainer.registry import CACHE
from elastictrainer.runs.environment import memory_bytes
from elastictrainer.runs.files import atomic_write, remove_unfinished
from elastictrainer.runs.log import LOG

FOLDER = Path("cache")
_ABANDONED_S = 600.0


class CachedSplit(IndexedSplit):
    """A part of a data set, decoded and resized once, with pixels as whole numbers 0..255."""

    def __init__(self, split: Any, size: Tuple[int, int], place: str, workers: int):
        """
        Args:
            split: the images to keep; they are read once, in its stored order.
            size: height and width.
            place: "memory", or "disk": a file in `cache/`, used again by later runs on the same images.
            workers: that decode.

        Raises:
            RunError: an image cannot be decoded, or the file cannot be written.
        """
        self.size = size
        self._split = split
        shape = (split.count, *size, 3)
        file = FOLDER / f"images-{size[0]}x{size[1]}-{_digest(split, size)}.npy"
        self._images = _read(file, shape) if place == "disk" else None
        if self._images is None:
            LOG.info(
                f"decoding {split.count} images, {np.prod(shape) / 1e6:.0f} MB"
                + (f" into {file}" if place == "disk" else "")
            )
            try:
                if place == "disk":
                    remove_unfinished(FOLDER, _ABANDONED_S)  # another process may be writing here
                    # In sequence: on a full disk, writing to a mapped file would end the process silently.
                    with atomic_write(file) as unfinished, open(unfinished, "wb") as stream:
                        header = {"descr": "|u1", "fortran_order": False, "shape": shape}
                        np.lib.format.write_array_header_1_0(stream, header)
                        for image in _decoded(split, size, workers):
                            stream.write(image.tobytes())
                    self._images = _read(file, shape)
                else:
                    images = np.empty(shape, np.uint8)
                    for k, image in enumerate(_decoded(split, size, workers)):
                        images[k] = image
                    self._images = images
            except tf.errors.OpError as error:
                raise unreadable(split, error) from None
            except OSError as error:
                raise RunError(
                    f"cannot keep the images in {file}: {error.strerror}. Choose --cache memory or none."
                ) from None
        self.labels = split.labels

    def reader(self, size: Tuple[int, int]) -> Callable[[tf.Tensor], tf.Tensor]:
        """Return a function from an image's number to the image."""
        images = self._images
        assert images is not None

        def image(number: np.ndarray) -> np.ndarray:
            return images[number].astype(np.float32)

        return lambda number: tf.ensure_shape(tf.numpy_function(image, [number], tf.float32), (*self.size, 3))

    def find_corrupt(self) -> Optional[DamagedImages]:
        """Return the error that names the damaged image; None where it cannot be found."""
        return self._split.find_corrupt()

    def fingerprint(self) -> Dict[str, Any]:
        """Return the contents, in order, and the times of the files."""
        return self._split.fingerprint()


def require_room(place: str, splits: Iterable[Any], size: Tuple[int, int]) -> None:
    """Raise UsageError if images need more memory than there is: the system would end the process."""
    needed, there = sum(split.count for split in splits) * size[0] * size[1] * 3, memory_bytes()
    if place == "memory" and there is not None and needed > there:
        raise UsageError(
            f"--cache memory: the decoded images take {needed / 1e9:.1f} GB, and this machine has "
            f"{there / 1e9:.1f} GB. Choose --cache disk, or none."
        )


def _decoded(split: Any, size: Tuple[int, int], workers: int) -> Iterator[np.ndarray]:
    """Yield each image, (H, W, 3) uint8, in the stored order."""
    for image, _ in stored(split, size, workers):
        yield np.rint(image.numpy()).clip(0, 255).astype(np.uint8)


def _read(file: Path, shape: Tuple[int, ...]) -> Optional[np.ndarray]:
    """Return the images of a file as an array that stays on the disk; None where there is no whole file of
    them.
    """
    try:
        images = np.load(file, mmap_mode="r")
    except (OSError, ValueError):
        return None
    return images if images.shape == shape and images.dtype == np.uint8 else None


def _digest(split: Any, size: Tuple[int, int]) -> str:
    """Return a digest of the files, their sizes and times, and how they are prepared."""
    about = [
        (str(file), status.st_size, status.st_mtime_ns) for file in split.files for status in [os.stat(file)]
    ]
    return hashlib.sha1(repr((about, preprocessing(size))).encode()).hexdigest()[:12]


def require_cacheable(place: str, split: Any) -> None:
    """Raise UsageError for an unknown place, or for images that are not in files of their own."""
    CACHE.check(place)
    if place != "none" and not hasattr(split, "files"):
        raise UsageError(
            "--cache is for images in files of their own (a folder, a .csv table); these are in memory, or "
            "in the files of a collection."
        )
