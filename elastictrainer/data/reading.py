"""The reading of a data set's files: memory, files left out, the column with the labels."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

import numpy as np

from elastictrainer.data.pictures import find_problem
from elastictrainer.errors import UnreadableImages

# Hidden names besides those that begin with a dot: of macOS' archives, of network drives, of Windows.
_HIDDEN = ("__MACOSX", "@eaDir", "Thumbs.db", "desktop.ini")


def is_hidden(name: str) -> bool:
    """Return whether a file or folder of that name is a system's, not a user's."""
    return name.startswith(".") or name in _HIDDEN


@dataclass
class Reading:
    """Settings for reading a data set.

    Attributes:
        skip_damaged: decode every image, and leave out those that cannot be read, instead of refusing them.
        left_out: the files that are left out; those that `skip_damaged` finds are added.
        damaged: the files that an interrupted run named as damaged. Of these, one that was deleted counts
            as there still, see `missing_files.replace_missing`.
        advice: for the user, about damaged images.
        label_column: of the labels of "hf:" data; None: its column `label`, or the only one of classes. A
            `UsageError` of `datasets.load_parts` where it is given for other data.
    """

    skip_damaged: bool = False
    left_out: List[str] = field(default_factory=list)
    damaged: Sequence[str] = ()
    advice: str = "Replace or delete them."
    label_column: Optional[str] = None

    def record(self) -> Dict[str, Any]:
        """Return the settings that a resumed run needs to read the same images."""
        return {"left_out": self.left_out, "damaged": list(self.damaged)}

    def usable(self, files: Sequence[Path]) -> np.ndarray:
        """Return (n,) bool: the files to use, all but those left out.

        Raises:
            UnreadableImages: a file is missing, empty, damaged, no image or too large, and may not be left
                out; the message names up to three such files.
        """
        names = list(map(str, files))
        passed = {*self.left_out, *(name for name in self.damaged if not os.path.exists(name))}
        checked = [name for name in names if name not in passed]
        with ThreadPoolExecutor(os.cpu_count() if self.skip_damaged else 1) as threads:
            found = threads.map(lambda name: find_problem(name, self.skip_damaged), checked)
            problems = {name: wrong for name, wrong in zip(checked, found) if wrong}
        if problems and not self.skip_damaged:
            raise UnreadableImages(unreadable_images(list(problems.values()), self.advice), list(problems))
        self.left_out += problems
        out = set(self.left_out)
        return np.array([name not in out for name in names], bool)


def unreadable_images(problems: Sequence[str], advice: str) -> str:
    """Return the sentence that names damaged images."""
    return f"{len(problems)} unreadable image(s): {abbreviated(problems)}. {advice}"


def abbreviated(items: Sequence[str]) -> str:
    """Return the first three items, separated by commas, and how many more there are."""
    return ", ".join(items[:3]) + (f" and {len(items) - 3} more" if len(items) > 3 else "")
