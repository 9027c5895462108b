"""Images in folders, train/CLASS/IMAGE and test/CLASS/IMAGE: list them, check their headers, read them."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import tensorflow as tf

from elastictrainer.data.parts import VALIDATION_NAMES
from elastictrainer.data.pictures import SUFFIXES, decode, decode_plain, decoding_problem, header
from elastictrainer.data.splits import IndexedSplit, prepare_image
from elastictrainer.errors import UsageError

LAYOUT = (
    "Expected: train/CLASS/IMAGE, test/CLASS/IMAGE and perhaps val/CLASS/IMAGE, images being "
    + " ".join(SUFFIXES)
    + "."
)


def read_folder(folder: Path) -> Tuple[List[str], Dict[str, "FolderSplit"]]:
    """The class names, in alphabetical order, and the parts: train, and test and val where there are such.

    The validation part's folder is `val`, `valid` or `validation`. Every file is opened and its
    header read. Pixels are decoded when training or evaluation reads them.

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
    classes = {part: _folders_in(folder / name) for part, name in folders.items()}
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
    return names, {part: _read_split(folder / name, names) for part, name in folders.items()}


def _folders_in(folder: Path) -> List[str]:
    return sorted(p.name for p in folder.iterdir() if p.is_dir())


def _read_split(folder: Path, names: List[str]) -> "FolderSplit":
    files_by_class = [images_in(folder / name) for name in names]
    files = checked_files([file for files in files_by_class for file in files])
    return FolderSplit(files, np.repeat(np.arange(len(names)), [len(files) for files in files_by_class]))


def images_in(folder: Path) -> List[Path]:
    """The image files of a class folder, not of folders in it, in alphabetical order.

    Raises:
        UsageError: there is none.
    """
    files = sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES)
    if not files:
        raise UsageError(f"{folder} holds no image. {LAYOUT}")
    return files


def checked_files(files: List[Path]) -> np.ndarray:
    """The paths as an array (n,) of str, in the same order, after a check of every file's header.

    Raises:
        UsageError: a file is missing, empty, or not an image; the message names up to three such files.
    """
    problems = [problem for problem in (header(file).problem for file in files) if problem]
    if problems:
        raise UsageError(
            f"{len(problems)} unreadable image(s): {abbreviated(problems)}. Replace or delete them."
        )
    return np.array([str(file) for file in files])


def abbreviated(items: List[str]) -> str:
    """The first three items, separated by commas, and how many more there are."""
    return ", ".join(items[:3]) + (f" and {len(items) - 3} more" if len(items) > 3 else "")


@dataclass
class FolderSplit(IndexedSplit):
    """A split whose images are files.

    Attributes:
        files: (n,) str, paths.
        labels: (n,) int.
    """

    files: np.ndarray
    labels: np.ndarray

    def subset(self, chosen: np.ndarray) -> "FolderSplit":
        """See `Divisible`."""
        return FolderSplit(self.files[chosen], self.labels[chosen])

    def reader(self, size: Tuple[int, int]) -> Callable[[tf.Tensor], tf.Tensor]:
        """See `IndexedSplit.reader`."""
        files = tf.constant([os.fsencode(file) for file in self.files])  # not all names are UTF-8
        plain = tf.constant([header(file).plain for file in self.files])

        def any_picture(file: tf.Tensor) -> tf.Tensor:
            pixels = tf.numpy_function(lambda name: decode(np.asarray(name).item()), [file], tf.uint8)
            return tf.ensure_shape(pixels, (None, None, 3))

        def read(number: tf.Tensor) -> tf.Tensor:
            file = files[number]
            pixels = tf.cond(plain[number], lambda: decode_plain(file), lambda: any_picture(file))
            return prepare_image(pixels, size)

        return read

    def culprit(self) -> str:
        """Names the damaged images, after decoding every image of the split; see `Split.culprit`."""
        problems = [problem for problem in map(decoding_problem, self.files) if problem]
        if not problems:
            return ""
        return f"{len(problems)} damaged image(s): {abbreviated(problems)}. Replace or delete them."

    def identity(self) -> Dict[str, Any]:
        """See `Split`: a folder that was moved or copied as a whole has the same contents."""
        about = [os.stat(file) for file in self.files]
        files = [str(file) for file in self.files]
        if len(set(map(os.path.isabs, files))) > 1:  # of a table
            files = list(map(os.path.abspath, files))
        root = os.path.commonpath(files)
        names = [os.path.relpath(file, root) for file in files]
        sizes, times = [one.st_size for one in about], [one.st_mtime_ns for one in about]
        return {"contents": list(zip(names, sizes, map(int, self.labels))), "times": times}
