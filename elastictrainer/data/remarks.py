"""Remarks on a user's data before training: unused files, imbalance, duplicates."""

import hashlib
import itertools
import os
from pathlib import Path
from typing import Dict, List, Sequence

from elastictrainer.data.image_data import ImageData
from elastictrainer.data.pictures import SUFFIXES
from elastictrainer.data.reading import abbreviated, is_hidden

_WORDS = {"train": "training", "val": "validation", "test": "test"}


def remarks(data: ImageData) -> List[str]:
    """Return a line for each of: unequal classes, unused files, hidden ones, images in two parts."""
    found = [data.imbalance()]
    files: Dict[str, Sequence[str]] = {
        part: split.files for part, split in data.splits.items() if hasattr(split, "files")
    }
    if len(files) == len(data.splits):
        if Path(data.name).is_dir():
            used = [file for part in files.values() for file in part]
            found += [_unused(used), _hidden(used)]
        for here, there in itertools.combinations(files, 2):  # train, val, test, in this order
            found.append(_shared(files[here], _WORDS[here], files[there], _WORDS[there]))
    return [line for line in found if line]


def _unused(files: Sequence[str]) -> str:
    """List the files next to the images of class folders, hidden files left out."""
    used = set(map(str, files))
    unused = sorted(
        entry.path
        for folder in sorted({os.path.dirname(file) for file in used})
        for entry in os.scandir(folder)
        if entry.path not in used and not is_hidden(entry.name)
    )
    if not unused:
        return ""
    return (
        f"not used: {abbreviated(unused)}. Images are those directly in a class' folder, ending in "
        f"{' '.join(SUFFIXES)}"
    )


def _hidden(files: Sequence[str]) -> str:
    """Name hidden files and folders that are ignored as images and classes."""
    classes = {os.path.dirname(file) for file in files}
    parts = {os.path.dirname(folder) for folder in classes}
    there = [entry for folder in sorted(parts) for entry in os.scandir(folder) if entry.is_dir()]
    there += [
        entry
        for folder in sorted(classes)
        for entry in os.scandir(folder)
        if os.path.splitext(entry.name)[1].lower() in SUFFIXES
    ]
    hidden = [entry.path for entry in there if is_hidden(entry.name)]
    return f"ignored as hidden: {abbreviated(hidden)}" if hidden else ""


def _shared(first: Sequence[str], first_words: str, second: Sequence[str], second_words: str) -> str:
    """List the files of two parts that have the same content."""
    sizes = [{file: os.path.getsize(file) for file in map(str, files)} for files in (first, second)]
    common = set(sizes[0].values()) & set(sizes[1].values())
    by_content = [_by_content([file for file, size in part.items() if size in common]) for part in sizes]
    both = sorted(set(by_content[0]) & set(by_content[1]), key=lambda digest: by_content[1][digest])
    count = sum(len(by_content[1][digest]) for digest in both)
    if not count:
        return ""
    pairs = [f"{by_content[1][digest][0]} is {by_content[0][digest][0]}" for digest in both]
    return (
        f"{count} of {len(second)} {second_words} images are {first_words} images too "
        f"({abbreviated(pairs)}): the {second_words} accuracy will be too good"
    )


def _by_content(files: Sequence[str]) -> Dict[str, List[str]]:
    found: Dict[str, List[str]] = {}
    for file in files:
        found.setdefault(hashlib.sha256(Path(file).read_bytes()).hexdigest(), []).append(file)
    return found
