"""Remarks on a user's data before training: unused files, imbalance, duplicates."""

import hashlib
import itertools
import os
from pathlib import Path
from typing import Dict, List, Sequence

import numpy as np

from elastictrainer.data.file_split import FileSplit
from elastictrainer.data.image_data import ImageData
from elastictrainer.data.parts import PARTS
from elastictrainer.data.pictures import HEIC, SUFFIXES
from elastictrainer.data.reading import abbreviated, is_hidden
from elastictrainer.data.splits import IndexedSplit


def remarks(data: ImageData) -> List[str]:
    """Return a line for each of: unequal classes, files that are not used, images in two parts."""
    found = [imbalance(data)]
    files: Dict[str, Sequence[str]] = {
        part: split.files.tolist() for part, split in data.splits.items() if isinstance(split, FileSplit)
    }
    if Path(data.name).is_dir():
        found.append(_unused([file for part in files.values() for file in part]))
    for first, second in itertools.combinations(files, 2):  # train, val, test, in this order
        found.append(_shared(files[first], PARTS[first], files[second], PARTS[second]))
    return [line for line in found if line]


def imbalance(data: ImageData) -> str:
    """Name the classes with the fewest and the most training images, if twice as many; else return ""."""
    if not isinstance(data.train_split, IndexedSplit):  # to read all of it would take long
        return ""
    counts = np.bincount(data.train_split.labels, minlength=len(data.class_names))
    few, many = int(counts.argmin()), int(counts.argmax())
    if counts[many] < 2 * counts[few]:
        return ""
    fewest, most = (f"{counts[label]} ({data.class_names[label]})" for label in (few, many))
    return f"training images by class: {fewest} to {most}"


def _unused(files: Sequence[str]) -> str:
    """Name what lies next to images and classes; of hidden files those that end as images do."""
    used, classes = set(files), {os.path.dirname(file) for file in files}
    unused = [
        entry.path
        for folder in sorted(classes)
        for entry in os.scandir(folder)
        if entry.path not in used and (not is_hidden(entry.name) or Path(entry).suffix.lower() in SUFFIXES)
    ]
    for part in sorted({os.path.dirname(folder) for folder in classes}):
        unused += [entry.path for entry in os.scandir(part) if entry.is_dir() and is_hidden(entry.name)]
    if not unused:
        return ""
    return (
        f"not used: {abbreviated(sorted(unused))}. Images are those directly in a class' folder, not hidden, "
        f"ending in {' '.join(SUFFIXES)}{_how_to_read(unused)}"
    )


def _how_to_read(unused: Sequence[str]) -> str:
    """Say what would read HEIC pictures that are not used; an empty string where none is."""
    missing = HEIC[0] not in SUFFIXES and any(Path(file).suffix.lower() in HEIC for file in unused)
    return '. HEIC is read after pip install ".[heic]" in the folder of the clone' if missing else ""


def _shared(first: Sequence[str], first_words: str, second: Sequence[str], second_words: str) -> str:
    """Name the files of two parts that have the same content."""
    common = set(map(os.path.getsize, first)) & set(map(os.path.getsize, second))
    known = {_digest(file): file for file in first if os.path.getsize(file) in common}
    pairs = [
        f"{file} is {known[digest]}"
        for file in second
        if os.path.getsize(file) in common and (digest := _digest(file)) in known
    ]
    if not pairs:
        return ""
    return (
        f"{len(pairs)} of {len(second)} {second_words} images are {first_words} images too "
        f"({abbreviated(pairs)}): the {second_words} accuracy will be too good"
    )


def _digest(file: str) -> str:
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()
