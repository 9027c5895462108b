"""What is noted of a data set when a run starts: its fingerprint, and remarks for the user."""

import hashlib
import itertools
import os
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, Sequence

import numpy as np

from elastictrainer.data.pictures import HEIC, SUFFIXES, is_hidden
from elastictrainer.data.splits import PARTS, IndexedSplit, Split
from elastictrainer.data.user_images import OWN_FOLDERS, FileSplit
from elastictrainer.errors import abbreviated

Fingerprint = Dict[str, Any]  # JSON values


def fingerprint(class_names: Sequence[str], splits: Mapping[str, Split]) -> Fingerprint:
    """Return the fingerprint of parts of a data set, as JSON values.

    These are `class_names` by label and, by part, the number of images and digests of their contents (paths,
    sizes and labels where they are files) and of these without the sizes.
    """
    return {
        "class_names": list(class_names),
        **{
            name: {"count": split.count, **{k: _digest(v) for k, v in split.fingerprint().items()}}
            for name, split in splits.items()
        },
    }


def changes(before: Fingerprint, now: Fingerprint, sizes_may_differ: bool = False) -> List[str]:
    """List the differences between two fingerprints, for a user to read.

    `sizes_may_differ` where the run named damaged files, which may have been replaced since.
    """
    found = []
    was, is_now = before["class_names"], now["class_names"]
    if was != is_now:
        found += [f"the class {name!r} is gone" for name in was if name not in is_now]
        found += [f"the class {name!r} is new" for name in is_now if name not in was]
        found = found or ["the classes are in another order"]
    if ("val" in before) != ("val" in now):
        found.append(f"the validation part is {'gone' if 'val' in before else 'new'}")
    for part in (part for part in PARTS if part in before and part in now):
        key = "names" if sizes_may_differ and "names" in before[part] else "contents"
        counts = before[part]["count"], now[part]["count"]
        if counts[0] != counts[1]:
            found.append(f"{part} had {counts[0]} images and has {counts[1]}")
        elif before[part][key] != now[part][key]:
            found.append(f"images of {part} were renamed, replaced or given another label")
    return found


def _digest(values: object) -> str:
    return hashlib.sha256(repr(values).encode(errors="surrogateescape")).hexdigest()[:16]


def remarks(name: str, class_names: Sequence[str], splits: Mapping[str, Split]) -> List[str]:
    """Return a line for each of: unequal classes, files that are not used, images in two parts."""
    found = [_imbalance(class_names, splits["train"]), unused(name, splits.values())]
    files = {part: split.files.tolist() for part, split in splits.items() if isinstance(split, FileSplit)}
    for first, second in itertools.combinations(files, 2):  # train, val, test, in this order
        found.append(_shared(files[first], PARTS[first], files[second], PARTS[second]))
    return [line for line in found if line]


def _imbalance(class_names: Sequence[str], train: Split) -> str:
    """Name the classes with the fewest and the most training images, if twice as many; else return ""."""
    if not isinstance(train, IndexedSplit):  # to read all of it would take long
        return ""
    counts = np.bincount(train.labels, minlength=len(class_names))
    few, many = int(counts.argmin()), int(counts.argmax())
    if counts[many] < 2 * counts[few]:
        return ""
    fewest, most = (f"{counts[label]} ({class_names[label]})" for label in (few, many))
    return f"training images by class: {fewest} to {most}"


def unused(name: str, splits: Iterable[Split]) -> str:
    """Name what lies in a folder of images, next to images and classes, and is not used; else return ""."""
    files = [file for split in splits if isinstance(split, FileSplit) for file in split.files.tolist()]
    if not files or not Path(name).is_dir():
        return ""
    used = {Path(file) for file in files}
    classes = {path.parent for path in used}
    parts, root = {path.parent for path in classes}, Path(name)
    unused = [path for folder in sorted(classes) for path in folder.iterdir() if path not in used]
    for part in sorted(parts):  # where it is the root, its folders are the classes
        hidden_too = [path for path in part.iterdir() if path not in classes]
        unused += [path for path in hidden_too if part != root or not path.is_dir()]
    if root not in parts:
        others = [path for path in root.iterdir() if path not in parts and path.name not in OWN_FOLDERS]
        unused += [path for path in others if path.is_dir() or path.suffix.lower() in SUFFIXES]
    found = [
        str(path)
        for path in unused
        if not is_hidden(path.name) or path.is_dir() or path.suffix.lower() in SUFFIXES
    ]
    if not found:
        return ""
    unread = HEIC[0] not in SUFFIXES and any(Path(file).suffix.lower() in HEIC for file in found)
    return (
        f"not used: {abbreviated(sorted(found))}. Images are those directly in a class' folder, not hidden, "
        f"ending in {' '.join(SUFFIXES)}"
        + unread
        * '. HEIC is read after pip install ".[heic]" in the folder of the clone'
    )


def _shared(first: Sequence[str], first_words: str, second: Sequence[str], second_words: str) -> str:
    common = set(map(os.path.getsize, first)) & set(map(os.path.getsize, second))
    known = {_digest_of(file): file for file in first if os.path.getsize(file) in common}
    pairs = [
        f"{file} is {known[digest]}"
        for file in second
        if os.path.getsize(file) in common and (digest := _digest_of(file)) in known
    ]
    if not pairs:
        return ""
    return (
        f"{len(pairs)} of {len(second)} {second_words} images are {first_words} images too "
        f"({abbreviated(pairs)}): the {second_words} accuracy will be too good"
    )


def _digest_of(file: str) -> str:
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()
