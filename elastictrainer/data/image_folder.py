"""Images in folders, train/CLASS/IMAGE and test/CLASS/IMAGE: list them, check their headers, read them."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np
import tensorflow as tf

from elastictrainer.data.parts import VALIDATION_NAMES
from elastictrainer.data.pictures import SUFFIXES, decode, decode_plain, decoding_problem, header
from elastictrainer.data.reading import Reading, abbreviated, is_hidden, unreadable
from elastictrainer.data.resizing import resized
from elastictrainer.data.splits import IndexedSplit
from elastictrainer.errors import DamagedImages, UsageError

LAYOUT = (
    "Expected: train/CLASS/IMAGE, test/CLASS/IMAGE and perhaps val/CLASS/IMAGE, images being "
    + " ".join(SUFFIXES)
    + "."
)


def read_folder(
    folder: Path, reading: Optional[Reading] = None
) -> Tuple[List[str], Dict[str, "FolderSplit"]]:
    """Return the class names, in alphabetical order, and the parts: train, and test and val where there are
    such.

    The validation part's folder is `val`, `valid` or `validation`. Every file is opened and its
    header and end read. Pixels are decoded when training or evaluation reads them.

    Args:
        folder: of the data.
        reading: chooses the files; None: all are read.

    Raises:
        UsageError: no training part, two validation parts, a class missing from a part, fewer than two
            classes, a class without images, an unreadable image.
    """
    if not (folder / "train").is_dir():
        raise UsageError(f"{folder} has no folder 'train'. {LAYOUT}")
    validation = [name for name in VALIDATION_NAMES if (folder / name).is_dir()]
    if len(validation) > 1:
        raise UsageError(
            f"{folder} has the folders {' and '.join(validation)}; one validation part is used: remove the "
            "others, or move them out."
        )
    folders = {"train": "train", "test": "test", "val": (validation or [""])[0]}
    folders = {part: name for part, name in folders.items() if name and (folder / name).is_dir()}
    classes = {part: class_folders(folder / name) for part, name in folders.items()}
    names = classes["train"]
    for part in list(folders)[1:]:
        for lacking, other in ((part, "train"), ("train", part)):
            missing = sorted(set(classes[other]) - set(classes[lacking]))
            if missing:
                raise UsageError(
                    f"{folder / folders[lacking]} lacks {abbreviated(missing)}, which "
                    f"{folder / folders[other]} has. Add images of it there, or remove the class from both."
                )
    if len(names) < 2:
        raise UsageError(f"{folder} has {len(names)} class(es); classification needs at least two. {LAYOUT}")
    reading = reading or Reading()
    return names, {part: read_classes(folder / name, names, reading) for part, name in folders.items()}


def class_folders(folder: Path) -> List[str]:
    """Return the names of the folders in a folder, in alphabetical order, without hidden ones."""
    return sorted(p.name for p in folder.iterdir() if p.is_dir() and not is_hidden(p.name))


def read_classes(folder: Path, names: List[str], reading: Reading) -> "FolderSplit":
    """Return the images in FOLDER/CLASS for each class name.

    Raises:
        UsageError: a class without images, an unreadable image.
    """
    files_by_class = [images_in(folder / name, reading) for name in names]
    files = [file for files in files_by_class for file in files]
    labels = np.repeat(np.arange(len(names)), [len(files) for files in files_by_class])
    usable = reading.usable(files)
    for label, name in enumerate(names):
        if not usable[labels == label].any():
            raise UsageError(
                f"{folder / name} holds no image that can be read. Add some, or remove the class."
            )
    return FolderSplit(np.array([str(file) for file in files])[usable], labels[usable])


def images_in(folder: Path, reading: Optional[Reading] = None) -> List[Path]:
    """Return the image files directly in a class folder, without hidden ones, in alphabetical order.

    Raises:
        UsageError: there is none.
    """
    there = [p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES and not is_hidden(p.name)]
    files = sorted(there + (reading.deleted_from(folder) if reading else []))
    if not files:
        raise UsageError(f"{folder} holds no image. {LAYOUT}")
    return files


@dataclass
class FolderSplit(IndexedSplit):
    """A split whose images are files.

    Attributes:
        files: (n,) str, paths.
        labels: (n,) int.
        groups: (n,) int, the series that each is of; None: all are unrelated.
    """

    files: np.ndarray
    labels: np.ndarray
    groups: Optional[np.ndarray] = None

    def subset(self, chosen: np.ndarray) -> "FolderSplit":
        """Return the examples that `chosen`, (n,) bool, marks."""
        groups = None if self.groups is None else self.groups[chosen]
        return FolderSplit(self.files[chosen], self.labels[chosen], groups)

    def reader(self, size: Tuple[int, int]) -> Callable[[tf.Tensor], tf.Tensor]:
        """Return a function from an image's number to the image."""
        files = tf.constant([os.fsencode(file) for file in self.files])  # not all names are UTF-8
        plain = tf.constant([header(file).plain for file in self.files])

        def any_picture(file: tf.Tensor) -> tf.Tensor:
            pixels = tf.numpy_function(lambda name: decode(np.asarray(name).item(), size), [file], tf.uint8)
            return tf.ensure_shape(pixels, (None, None, 3))

        def read(number: tf.Tensor) -> tf.Tensor:
            file = files[number]
            pixels = tf.cond(
                plain[number],
                lambda: decode_plain(tf.io.read_file(file), size),
                lambda: any_picture(file),
            )
            return resized(pixels, size)

        return read

    def find_corrupt(self) -> Optional[DamagedImages]:
        """Name the damaged images, after decoding every image of the split."""
        problems = {str(file): problem for file in self.files if (problem := decoding_problem(file))}
        if not problems:
            return None
        return DamagedImages(unreadable(list(problems.values()), Reading.advice), list(problems))

    def fingerprint(self) -> Dict[str, Any]:
        """Return the fingerprint; a folder that was moved or copied as a whole has the same contents.

        `names` are the contents without the sizes, which stay when a damaged file is replaced or deleted.
        """
        about = [os.stat(file) if os.path.exists(file) else None for file in self.files]
        files = [str(file) for file in self.files]
        if len(set(map(os.path.isabs, files))) > 1:  # of a table
            files = list(map(os.path.abspath, files))
        root = os.path.commonpath(files)
        names = [os.path.relpath(file, root) for file in files]
        sizes, times = [one and one.st_size for one in about], [one and one.st_mtime_ns for one in about]
        labels = list(map(int, self.labels))
        return {
            "contents": list(zip(names, sizes, labels)),
            "names": list(zip(names, labels)),
            "times": times,
        }
