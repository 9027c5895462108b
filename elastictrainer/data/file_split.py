"""A part of a data set whose images are files of their own: those of folders and of tables."""

import os
from dataclasses import dataclass
from typing import Any, Dict, Optional

import numpy as np

from elastictrainer.data.pictures import Size, decode
from elastictrainer.data.splits import IndexedSplit


@dataclass
class FileSplit(IndexedSplit):
    """A split whose images are files.

    Attributes:
        files: (n,) str, paths.
        labels: (n,) int.
        groups: (n,) int, the series that each is of; None: all are unrelated.
    """

    files: np.ndarray
    labels: np.ndarray
    groups: Optional[np.ndarray] = None

    def name_of(self, number: int) -> str:
        return str(self.files[number])

    def subset(self, chosen: np.ndarray) -> "FileSplit":
        groups = None if self.groups is None else self.groups[chosen]
        return FileSplit(self.files[chosen], self.labels[chosen], groups)

    def image(self, number: int, size: Size) -> np.ndarray:
        return decode(str(self.files[number]), size)

    def fingerprint(self) -> Dict[str, Any]:
        """Return the fingerprint; a folder that was moved or copied as a whole has the same contents.

        `names` are the contents without the sizes, which stay when a damaged file is replaced or deleted.
        """
        files = [str(file) for file in self.files]
        if len(set(map(os.path.isabs, files))) > 1:  # of a table
            files = list(map(os.path.abspath, files))
        root = os.path.commonpath(files)
        names = [(os.path.relpath(file, root), int(label)) for file, label in zip(files, self.labels)]
        sizes = [os.path.getsize(file) if os.path.exists(file) else None for file in files]
        return {"contents": list(zip(names, sizes)), "names": names}
