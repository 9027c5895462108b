"""The user's images in a table of files, or in arrays."""

import csv
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence, Tuple, TypeVar, Union

import numpy as np

from elastictrainer.data.file_split import FileSplit
from elastictrainer.data.parts import PARTS, UNSPLIT, VALIDATION_NAMES
from elastictrainer.data.reading import Reading, abbreviated
from elastictrainer.data.splits import ArraySplit, Split
from elastictrainer.errors import UsageError

# The images and labels of each part in an `.npz` file; what may be left out, and what comes alone.
_ARRAYS = {
    "train": ("x_train", "y_train"),
    "val": ("x_val", "y_val"),
    "test": ("x_test", "y_test"),
    UNSPLIT: ("x", "y"),
}
_NEEDED = ({"train", "test"}, {"train", "val", "test"}, {UNSPLIT})
_SPLITS = {"train": "train", "test": "test", **dict.fromkeys(VALIDATION_NAMES, "val")}


def read_table(path: Path, reading: Reading) -> Tuple[List[str], Dict[str, FileSplit]]:
    """Read the images of a CSV file with the columns path, label and optionally split (train, val or test)
    and group (any text; without one an image is a group of its own).

    Paths are relative to the folder of the CSV file. Class names are in alphabetical order.

    Returns:
        Class names by label; and the images by part, UNSPLIT alone if there is no column `split`.

    Raises:
        UsageError: the file cannot be read, a column is missing, a field is empty or holds another split (the
            message gives the line), a group is in two parts, a class is missing from a part, an unreadable
            image.
    """
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            columns = reader.fieldnames or []
            rows = {}  # by line: empty lines are no rows
            for row in reader:
                rows[reader.line_num] = row
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text: save it as UTF-8.") from None
    except (OSError, csv.Error) as error:
        raise UsageError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}.") from None
    missing = [column for column in ("path", "label") if column not in columns]
    if missing:
        raise UsageError(
            f"{path} has no column {missing[0]!r}; expected: path, label, and perhaps split (train, val "
            "or test) and group."
        )
    for line, row in rows.items():
        empty = [column for column in ("path", "label") if not (row[column] or "").strip()]
        if empty:
            raise UsageError(f"{path}, line {line}: {empty[0]} is empty.")
        if "split" in columns and (row["split"] or "").strip() not in _SPLITS:
            raise UsageError(f"{path}, line {line}: split is {row['split']!r}; allowed: train, val, test.")
        row["part"] = _SPLITS[row["split"].strip()] if "split" in columns else UNSPLIT
    names, labels = np.unique([row["label"].strip() for row in rows.values()], return_inverse=True)
    groups = _groups(path, rows) if "group" in columns else None
    files = [path.parent / row["path"].strip() for row in rows.values()]
    usable = reading.usable(files)
    whole = FileSplit(np.array([str(file) for file in files]), labels, groups)
    part_of = np.array([row["part"] for row in rows.values()], str)
    parts = {part: whole.subset(usable & (part_of == part)) for part in (*PARTS, UNSPLIT)}
    return names.tolist(), _without_empty(path, names.tolist(), parts)


def _groups(path: Path, rows: Mapping[int, Dict[str, str]]) -> np.ndarray:
    """Number the groups of a table's rows by line, (n,) int; a row without a group is one of its own.

    UsageError where a group is in two parts.
    """
    first_line: Dict[Union[str, int], int] = {}  # in which a group comes
    numbers = []
    for line, row in rows.items():
        name = (row["group"] or "").strip()
        first = first_line.setdefault(name or line, line)
        if row["part"] != rows[first]["part"]:
            raise UsageError(
                f"{path}: group {name!r} is in {rows[first]['part']} (line {first}) and in {row['part']} "
                f"(line {line}); put all its images into one part."
            )
        numbers.append(first)
    return np.array(numbers)


def read_arrays(path: Path) -> Tuple[List[str], Dict[str, ArraySplit]]:
    """Read an `.npz` file's images: x_train, y_train, x_test, y_test and perhaps x_val, y_val; or x and y.

    Returns:
        Class names ("0", "1", ...); and the images by part, UNSPLIT alone if the file holds x and y.

    Raises:
        UsageError: the file cannot be read, its arrays have other names, shapes, types or values, or a
            class is missing from a part.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            found: Dict[str, Any] = {name: file[name] for name in file.files}
    except Exception as error:  # zipfile, zlib and NumPy raise whatever a damaged file makes them
        why = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        raise UsageError(f"cannot read {path} as arrays ({' '.join(why.split())[:200]}).") from None
    arrays = {name: value for name, value in found.items() if isinstance(value, np.ndarray)}  # not bytes
    used = {part: pair for part, pair in _ARRAYS.items() if set(pair) & set(arrays)}
    if set(used) not in _NEEDED or not all(set(pair) <= set(arrays) for pair in used.values()):
        raise UsageError(
            f"{path} holds {abbreviated(sorted(arrays)) or 'no arrays'}; "
            "expected: x_train, y_train, x_test and y_test, and perhaps x_val and y_val, or x and y."
        )
    for x, y in used.values():
        arrays[y] = arrays[y].reshape(-1)
        problem = _problem(x, arrays[x], y, arrays[y])
        if problem:
            raise UsageError(f"{path}: {problem}.")
    if len({arrays[x].shape[1:] for x, _ in used.values()}) > 1:
        shapes = ", ".join(f"{x} of {arrays[x].shape[1:]}" for x, _ in used.values())
        raise UsageError(f"{path} holds images of several sizes: {shapes}.")
    names = [str(k) for k in range(max(arrays[y].max(initial=0) for _, y in used.values()) + 1)]
    parts = {part: ArraySplit(arrays[x], arrays[y].astype(np.int64)) for part, (x, y) in used.items()}
    return names, _without_empty(path, names, parts)


AnySplit = TypeVar("AnySplit", bound=Split)


def _without_empty(path: Path, names: Sequence[str], parts: Mapping[str, AnySplit]) -> Dict[str, AnySplit]:
    """Return the parts that have images; UsageError if a class is missing from one of several."""
    found = {part: split for part, split in parts.items() if split.count}
    if UNSPLIT in found:
        return found
    expected = [part for part in PARTS if part in found or part == "train"]
    for label, name in enumerate(names):
        if not all(part in found and (found[part].labels == label).any() for part in expected):
            raise UsageError(f"{path}: class {name!r} is not in all of {', '.join(expected)}.")
    return found


def _problem(x: str, images: np.ndarray, y: str, labels: np.ndarray) -> str:
    """Return why the arrays `x` and `y` cannot be images and labels; an empty string if they can."""
    if images.ndim != 4 or images.shape[-1] != 3 or images.dtype.kind not in "uif":
        return f"{x} must be images (n, height, width, 3), not {images.shape} of {images.dtype}"
    if len(images) != len(labels):
        return f"{x} has {len(images)} images, {y} {len(labels)} labels"
    if labels.dtype.kind not in "ui" or labels.min(initial=0) < 0:
        return f"{y} must be class numbers from 0, not {labels.dtype}"
    if labels.max(initial=0) >= max(1, len(labels)):  # every class has an image
        return (
            f"{y} has the label {labels.max()}, with {len(labels)} images; labels are class numbers from 0, "
            "without gaps"
        )
    low, high = images.min(initial=0), images.max(initial=0)
    if not (0 <= low and high <= 255):  # NaN, too
        return f"{x} must be in 0..255, not {low:g} to {high:g}"
    if images.dtype.kind == "f" and 0 < high <= 1:
        return f"{x} is in 0..1; multiply by 255, which is what the models here take"
    return ""
