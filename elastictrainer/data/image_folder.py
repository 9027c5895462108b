"""Images in folders, split/class/image.jpg: found, checked and read."""

import stat
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, List, Tuple

import numpy as np
import tensorflow as tf

from elastictrainer.data.splits import IndexedSplit, prepare_image
from elastictrainer.errors import UsageError

SPLITS = ("train", "test")
SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif")
_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "MPO")
LAYOUT = "Expected: train/CLASS/IMAGE and test/CLASS/IMAGE, images being " + " ".join(SUFFIXES) + "."


def read_folder(folder: Path) -> Tuple[List[str], List["FolderSplit"]]:
    """The class names, in alphabetical order, and the splits train and test.

    Every file is opened and its header read; pixels are decoded only when they are used.

    Raises:
        UsageError: a missing split, a class missing from a split, a class without images, an unreadable image.
    """
    classes_by_split = {}
    for split in SPLITS:
        if not (folder / split).is_dir():
            raise UsageError(
                f"{folder} has no folder {split!r}. {LAYOUT} Or CLASS/IMAGE with --validation-split 0.2, which sets a fifth "
                "of every class apart for testing."
            )
        classes_by_split[split] = sorted(p.name for p in (folder / split).iterdir() if p.is_dir())
    names = classes_by_split["train"]
    for split, other in (SPLITS, SPLITS[::-1]):
        missing = sorted(set(classes_by_split[other]) - set(classes_by_split[split]))
        if missing:
            raise UsageError(
                f"{folder / split} lacks {some(missing)}, which {folder / other} has. "
                "Add images of it there, or remove the class from both."
            )
    if len(names) < 2:
        raise UsageError(f"{folder} has {len(names)} class(es); classification needs at least two. {LAYOUT}")
    return names, [_read_split(folder / split, names) for split in SPLITS]


def _read_split(folder: Path, names: List[str]) -> "FolderSplit":
    found = [images_in(folder / name) for name in names]
    files = checked_files([file for files in found for file in files])
    return FolderSplit(files, np.repeat(np.arange(len(names)), [len(files) for files in found]))


def images_in(folder: Path) -> List[Path]:
    """The image files right in a class' folder, by name; UsageError where there is none."""
    found = sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES)
    if not found:
        raise UsageError(f"{folder} holds no image. {LAYOUT}")
    return found


def checked_files(files: List[Path]) -> np.ndarray:
    """(n,) the paths as text; UsageError, naming some, where one is no image as far as its header tells."""
    bad = [problem for problem in map(_header_problem, files) if problem]
    if bad:
        raise UsageError(f"{len(bad)} unreadable image(s): {some(bad)}. Replace or delete them.")
    return np.array([str(file) for file in files])


def _header_problem(file: Path) -> str:
    """What is wrong with an image file as far as its header tells, or an empty string."""
    from PIL import Image

    try:
        found = file.stat()
        if not stat.S_ISREG(found.st_mode):
            return f"{file} (not a regular file)"
        if found.st_size == 0:
            return f"{file} (empty)"
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(file) as image:
                if image.format not in _FORMATS:
                    return f"{file} ({image.format} inside)"
    except Image.UnidentifiedImageError:
        return f"{file} (not an image)"
    except (
        OSError,
        SyntaxError,
        ValueError,
        Image.DecompressionBombError,
        Image.DecompressionBombWarning,
    ) as error:
        return f"{file} ({getattr(error, 'strerror', None) or error})"
    return ""


def _decode(file: Any) -> tf.Tensor:
    """(H, W, 3) uint8; of a moving image the first frame."""
    return tf.io.decode_image(tf.io.read_file(file), channels=3, expand_animations=False)


def _decoding_problem(file: str) -> str:
    """What is wrong with an image file's pixels, or an empty string."""
    try:
        _decode(file)
    except tf.errors.OpError as error:
        return f"{file} ({error.message.splitlines()[0]})"
    return ""


def some(items: List[str]) -> str:
    """The first three, and how many more."""
    return ", ".join(items[:3]) + (f" and {len(items) - 3} more" if len(items) > 3 else "")


@dataclass
class FolderSplit(IndexedSplit):
    """Image files (n,) and their labels (n,)."""

    files: np.ndarray
    labels: np.ndarray

    def reader(self, size: Tuple[int, int]) -> Callable[[tf.Tensor], tf.Tensor]:
        files = tf.constant(self.files)
        return lambda number: prepare_image(_decode(files[number]), size)

    def culprit(self) -> str:
        """Decode every image to find those that cannot be."""
        bad = [problem for problem in map(_decoding_problem, self.files) if problem]
        return f"{len(bad)} damaged image(s): {some(bad)}. Replace or delete them." if bad else ""
