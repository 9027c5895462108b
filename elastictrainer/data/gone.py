"""Images that a run named as damaged and that were deleted since: it goes on without them."""

import os
from dataclasses import replace
from typing import Any, Dict, Sequence

import numpy as np

from elastictrainer.data.image_data import ImageData
from elastictrainer.data.image_folder import FolderSplit
from elastictrainer.data.reading import abbreviated
from elastictrainer.data.splits import Divisible, Split
from elastictrainer.errors import UsageError
from elastictrainer.runs.log import LOG


def without(data: ImageData) -> ImageData:
    """Return the data without files that are gone.

    Another training image of the class stands in for each, because the order of the others depends on their
    number. Validation and test images are left out.

    Args:
        data: after what tells it from other data was compared, which needs the names of all its files.

    Raises:
        UsageError: none of the training images of a class is left.
    """
    now: Dict[str, Any] = {}
    for part, split in data.splits.items():
        missing = _missing(split)
        if isinstance(split, FolderSplit) and missing.any():
            names = abbreviated(split.files[missing].tolist())
            if part == "train":
                LOG.info(f"gone: {names}; another training image of the class stands in for each")
            else:
                LOG.info(f"gone: {names}; left out of the {part} part")
            now[f"{part}_split"] = (
                _with_stand_ins(split, missing) if part == "train" else split.subset(~missing)
            )
    return replace(data, **now)


def left(split: Divisible) -> Divisible:
    """Return the images of a split that are there."""
    missing = _missing(split)
    return split.subset(~missing) if missing.any() else split


def _missing(split: Split) -> np.ndarray:
    files: Sequence[str] = getattr(split, "files", ())
    return np.array([not os.path.exists(file) for file in files], bool)


def _with_stand_ins(split: FolderSplit, missing: np.ndarray) -> FolderSplit:
    files = split.files.copy()
    for number in np.flatnonzero(missing):
        others = np.flatnonzero((split.labels == split.labels[number]) & ~missing)
        if not len(others):
            raise UsageError(
                f"{files[number]} is gone, and so are all training images of its class. Put it back, or "
                "train on the data as it is in a new run."
            )
        files[number] = split.files[others[number % len(others)]]
    return FolderSplit(files, split.labels)
