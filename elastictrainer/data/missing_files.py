"""Images that a run named as damaged and that were deleted since: it goes on without them."""

import os
from dataclasses import replace

import numpy as np

from elastictrainer.data.file_split import FileSplit
from elastictrainer.data.image_data import ImageData
from elastictrainer.data.reading import abbreviated
from elastictrainer.data.splits import Split
from elastictrainer.errors import UsageError
from elastictrainer.runs.log import LOG


def replace_missing(data: ImageData) -> ImageData:
    """Return the data without files that are gone.

    Another training image of the class stands in for each, because the order of the others depends on their
    number. Validation and test images are left out. The fingerprint, which needs the names of all files, was
    compared before. UsageError where none of the training images of a class is left.
    """
    splits = dict(data.splits)
    for part, split in data.splits.items():
        missing = _missing(split)
        if isinstance(split, FileSplit) and missing.any():
            if part == "train":
                splits[part] = _with_stand_ins(split, missing)
                instead = "another training image of the class stands in for each"
            else:
                splits[part], instead = split.subset(~missing), f"left out of the {part} part"
            LOG.info(f"gone: {abbreviated(split.files[missing].tolist())}; {instead}")
    return replace(data, splits=splits)


def without_missing(split: Split) -> Split:
    """Return the images of a split that are there."""
    missing = _missing(split)
    return split.subset(~missing) if missing.any() else split


def _missing(split: Split) -> np.ndarray:
    """Return (n,) bool: the images whose file is gone; (0,) where they are no files."""
    files = split.files if isinstance(split, FileSplit) else ()
    return np.array([not os.path.exists(file) for file in files], bool)


def _with_stand_ins(split: FileSplit, missing: np.ndarray) -> Split:
    files = split.files.copy()
    for number in np.flatnonzero(missing):
        others = np.flatnonzero((split.labels == split.labels[number]) & ~missing)
        if not len(others):
            raise UsageError(
                f"{files[number]} is gone, and so are all training images of its class. Put it back, or "
                "train on the data as it is in a new run."
            )
        files[number] = split.files[others[number % len(others)]]
    return replace(split, files=files)
