"""Images of the user's in other layouts: class folders without a split, a table of files, arrays."""

import csv
from pathlib import Path
from typing import Any, List, Optional, Tuple

import numpy as np

from elastictrainer.data.image_folder import LAYOUT, checked_files, images_in, some
from elastictrainer.errors import UsageError

Labelled = Tuple[List[str], np.ndarray, np.ndarray]  # class names, items (n,), labels (n,)


def test_part(labels: np.ndarray, names: List[str], fraction: float, seed: int) -> np.ndarray:
    """(n,) bool: which examples are set apart for testing, `fraction` of every class and at least one.

    Raises:
        UsageError: a class with a single example, which cannot be in both parts.
    """
    random = np.random.default_rng([seed, len(labels)])
    apart = np.zeros(len(labels), bool)
    for label, name in enumerate(names):
        members = np.flatnonzero(labels == label)
        if len(members) < 2:
            raise UsageError(
                f"class {name!r} has {len(members)} image(s); --validation-split needs at least two of each."
            )
        count = min(max(1, round(fraction * len(members))), len(members) - 1)
        apart[random.choice(members, count, replace=False)] = True
    return apart


def read_class_folders(folder: Path) -> Labelled:
    """Class names, image files and labels of the layout CLASS/IMAGE."""
    names = sorted(p.name for p in folder.iterdir() if p.is_dir())
    if len(names) < 2:
        raise UsageError(
            f"{folder} has {len(names)} class folder(s); classification needs at least two. {LAYOUT}"
        )
    found = [images_in(folder / name) for name in names]
    files = checked_files([file for files in found for file in files])
    return names, files, np.repeat(np.arange(len(names)), [len(files) for files in found])


def read_table(path: Path) -> Tuple[Labelled, Optional[np.ndarray]]:
    """A CSV file with the columns path, label, and perhaps split (train or test); paths are relative to the file's folder.

    Returns:
        Class names, files and labels; and (n,) bool, True for test, or None where there is no column `split`.

    Raises:
        UsageError: a missing column, an empty field, another split, a file that is no image: with the line.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            columns = reader.fieldnames or []
            rows = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}.") from None
    missing = [column for column in ("path", "label") if column not in columns]
    if missing:
        raise UsageError(
            f"{path} has no column {missing[0]!r}; expected: path, label, and perhaps split (train or test)."
        )
    for line, row in enumerate(rows, 2):
        empty = [column for column in ("path", "label") if not (row[column] or "").strip()]
        if empty:
            raise UsageError(f"{path}, line {line}: {empty[0]} is empty.")
        if "split" in columns and (row["split"] or "").strip() not in ("train", "test"):
            raise UsageError(f"{path}, line {line}: split is {row['split']!r}; allowed: train, test.")
    names = sorted({row["label"].strip() for row in rows})
    if len(names) < 2:
        raise UsageError(f"{path} names {len(names)} class(es); classification needs at least two.")
    number = {name: label for label, name in enumerate(names)}
    files = checked_files([path.parent / row["path"].strip() for row in rows])
    labels = np.array([number[row["label"].strip()] for row in rows])
    apart = np.array([row["split"].strip() == "test" for row in rows]) if "split" in columns else None
    return (names, files, labels), apart


def read_arrays(path: Path) -> Tuple[List[str], np.ndarray, np.ndarray, Optional[np.ndarray]]:
    """The arrays of an `.npz` file: x_train, y_train, x_test, y_test, or x and y.

    Returns:
        Class names (the numbers), images (n, H, W, 3) in 0..255, labels (n,); and (n,) bool, True for test, or None where
        the file holds x and y.

    Raises:
        UsageError: no such file, other arrays, shapes or values.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError) as error:
        raise UsageError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}.") from None
    wanted = next(
        (w for w in (("x_train", "y_train", "x_test", "y_test"), ("x", "y")) if set(w) <= set(arrays)), None
    )
    if wanted is None:
        raise UsageError(
            f"{path} holds {some(sorted(arrays))}; expected: x_train, y_train, x_test and y_test, or x and y."
        )
    for x, y in zip(wanted[::2], wanted[1::2]):
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
        if len(images) and not (0 <= images.min() and images.max() <= 255):
            raise UsageError(f"{path}: {x} must be in 0..255, not {images.min():g} to {images.max():g}.")
        if images.dtype.kind == "f" and len(images) and images.max() <= 1:
            raise UsageError(f"{path}: {x} is in 0..1; multiply by 255, which is what the models here take.")
    if len({arrays[x].shape[1:] for x in wanted[::2]}) > 1:
        raise UsageError(
            f"{path}: x_train holds images of {arrays['x_train'].shape[1:]}, x_test of {arrays['x_test'].shape[1:]}."
        )
    images, labels = (np.concatenate([arrays[name] for name in wanted[part::2]]) for part in (0, 1))
    names = [str(k) for k in range(int(labels.max(initial=0)) + 1)]
    apart = np.arange(len(labels)) >= len(arrays["y_train"]) if "y_train" in wanted else None
    return names, images, labels, apart


def split_parts(items: Any, labels: np.ndarray, apart: np.ndarray) -> List[Tuple[Any, np.ndarray]]:
    """[(items, labels) to train on, (items, labels) to test on]."""
    return [(items[part], labels[part].astype(np.int64)) for part in (~apart, apart)]
