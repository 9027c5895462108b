"""The user's images without train/ and test/ folders: class folders, a table of files, arrays."""

import codecs
import csv
import io
from pathlib import Path
from typing import Dict, List, Sequence, Tuple, Union

import numpy as np

from elastictrainer.data.image_folder import LAYOUT, FolderSplit, class_folders, read_classes
from elastictrainer.data.parts import UNSPLIT, VALIDATION_NAMES
from elastictrainer.data.reading import Reading, abbreviated
from elastictrainer.errors import UsageError

# The arrays that an `.npz` file may hold, images and labels in turn.
_ARRAYS = (
    {"train": ("x_train", "y_train"), "val": ("x_val", "y_val"), "test": ("x_test", "y_test")},
    {"train": ("x_train", "y_train"), "test": ("x_test", "y_test")},
    {UNSPLIT: ("x", "y")},
)
_SPLITS = {"train": "train", "test": "test", **dict.fromkeys(VALIDATION_NAMES, "val")}


def read_class_folders(folder: Path, reading: Reading) -> Tuple[List[str], FolderSplit]:
    """Read the images of a folder with the layout CLASS/IMAGE; class names in alphabetical order.

    Raises:
        UsageError: fewer than two classes, a class without images, an unreadable image.
    """
    names = class_folders(folder)
    if len(names) < 2:
        raise UsageError(
            f"{folder} has {len(names)} class folder(s); classification needs at least two. {LAYOUT}"
        )
    return names, read_classes(folder, names, reading)


def read_table(path: Path, reading: Reading) -> Tuple[List[str], FolderSplit, List[str]]:
    """Read the images of a CSV file with the columns path, label and optionally split (train, val or test)
    and group (any text; without one an image is a group of its own).

    Paths are relative to the folder of the CSV file. Class names are in alphabetical order.

    Returns:
        Class names by label; the images; and (n,) the part that each is in, UNSPLIT if there is no column
        `split`.

    Raises:
        UsageError: the file cannot be read, a column is missing, a field is empty or holds another split (the
            message gives the line), a group is in two parts, fewer than two classes, an unreadable image.
    """
    try:
        reader = csv.DictReader(io.StringIO(_text(path), newline=""))
        columns = reader.fieldnames or []
        rows = list(reader)
    except (OSError, csv.Error) as error:
        raise UsageError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}.") from None
    missing = [column for column in ("path", "label") if column not in columns]
    if missing:
        raise UsageError(
            f"{path} has no column {missing[0]!r}; expected: path, label, and perhaps split (train, val "
            "or test) and group."
        )
    for line, row in enumerate(rows, 2):
        empty = [column for column in ("path", "label") if not (row[column] or "").strip()]
        if empty:
            raise UsageError(f"{path}, line {line}: {empty[0]} is empty.")
        if "split" in columns and (row["split"] or "").strip() not in _SPLITS:
            raise UsageError(f"{path}, line {line}: split is {row['split']!r}; allowed: train, val, test.")
    names = sorted({row["label"].strip() for row in rows})
    if len(names) < 2:
        raise UsageError(f"{path} names {len(names)} class(es); classification needs at least two.")
    label_of = {name: label for label, name in enumerate(names)}
    part_of = [_SPLITS[row["split"].strip()] if "split" in columns else UNSPLIT for row in rows]
    groups = _groups(path, rows, part_of) if "group" in columns else None
    files = [path.parent / row["path"].strip() for row in rows]
    usable = reading.usable(files)
    labels = np.array([label_of[row["label"].strip()] for row in rows])
    whole = FolderSplit(np.array([str(file) for file in files]), labels, groups).subset(usable)
    return names, whole, np.array(part_of)[usable].tolist()


def _groups(path: Path, rows: Sequence[Dict[str, str]], part_of: Sequence[str]) -> np.ndarray:
    """Number the groups of a table, (n,) int; a row without a group is one of its own.

    Raises:
        UsageError: a group is in two parts.
    """
    first: Dict[Union[str, int], Tuple[int, str]] = {}  # line and part in which a group comes first
    numbers = []
    for line, (row, part) in enumerate(zip(rows, part_of), 2):
        name = (row["group"] or "").strip()
        number, other = first.setdefault(name or line, (line, part))
        if part != other:
            raise UsageError(
                f"{path}: group {name!r} is in {other} (line {number}) and in {part} (line {line}); put all "
                "its images into one part."
            )
        numbers.append(number)
    return np.array(numbers)


def _text(path: Path) -> str:
    """Read the text of a table; UsageError where it is not UTF-8."""
    content = path.read_bytes()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        is_utf16 = content[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        line = content[: error.start].count(b"\n") + 1
        guess = "It is UTF-16" if is_utf16 else f"Line {line} is in another encoding, Latin-1 perhaps"
        raise UsageError(f"{path} is not UTF-8 text. {guess}: save it as UTF-8.") from None


def read_arrays(path: Path) -> Tuple[List[str], np.ndarray, np.ndarray, List[str]]:
    """Read the images of an `.npz` file with the arrays x_train, y_train, x_test, y_test, or x and y.

    The former four may come with x_val and y_val.

    Returns:
        Class names ("0", "1", ...), images (n, H, W, 3) in 0..255, labels (n,); and (n,) the part that each
        is in, UNSPLIT if the file holds x and y.

    Raises:
        UsageError: the file cannot be read, or its arrays have other names, shapes, types or values.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            found = {name: file[name] for name in file.files}
    except MemoryError as error:
        raise UsageError(f"{path} claims to hold more than fits into the memory ({error}).") from None
    except Exception as error:  # zipfile, zlib and NumPy raise whatever a damaged file makes them
        why = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        raise UsageError(f"cannot read {path} as arrays ({' '.join(why.split())[:200]}).") from None
    arrays = {name: value for name, value in found.items() if isinstance(value, np.ndarray)}  # not bytes
    used = next((by for by in _ARRAYS if all(set(pair) <= set(arrays) for pair in by.values())), None)
    if used is None:
        raise UsageError(
            f"{path} holds {abbreviated(sorted(arrays)) or 'no arrays'}; "
            "expected: x_train, y_train, x_test and y_test, and perhaps x_val and y_val, or x and y."
        )
    unpaired = {"x_val", "y_val"} & set(arrays)
    if "train" in used and "val" not in used and unpaired:
        raise UsageError(f"{path} holds {unpaired.pop()} without its images or labels: x_val and y_val.")
    for x, y in used.values():
        arrays[y] = arrays[y].reshape(-1)
        images, labels = arrays[x], arrays[y]
        if images.ndim != 4 or images.shape[-1] != 3 or images.dtype.kind not in "uif":
            raise UsageError(
                f"{path}: {x} must be images (n, height, width, 3), not {images.shape} of {images.dtype}."
            )
        if len(images) != len(labels):
            raise UsageError(f"{path}: {x} has {len(images)} images, {y} {len(labels)} labels.")
        if labels.dtype.kind not in "ui" or (len(labels) and labels.min() < 0):
            raise UsageError(f"{path}: {y} must be class numbers from 0, not {labels.dtype}.")
        if labels.max(initial=0) >= max(1, len(labels)):  # every class has an image
            raise UsageError(
                f"{path}: {y} has the label {labels.max()}, with {len(labels)} images; labels are class "
                "numbers from 0, without gaps."
            )
        if len(images) and not (0 <= images.min() and images.max() <= 255):
            raise UsageError(f"{path}: {x} must be in 0..255, not {images.min():g} to {images.max():g}.")
        if images.dtype.kind == "f" and len(images) and images.max() <= 1:
            raise UsageError(f"{path}: {x} is in 0..1; multiply by 255, which is what the models here take.")
    if len({arrays[x].shape[1:] for x, _ in used.values()}) > 1:
        shapes = ", ".join(f"{x} of {arrays[x].shape[1:]}" for x, _ in used.values())
        raise UsageError(f"{path} holds images of several sizes: {shapes}.")
    images = np.concatenate([arrays[x] for x, _ in used.values()])
    labels = np.concatenate([arrays[y] for _, y in used.values()])
    names = [str(k) for k in range(int(labels.max(initial=0)) + 1)]
    return names, images, labels, [part for part, (_, y) in used.items() for _ in range(len(arrays[y]))]
