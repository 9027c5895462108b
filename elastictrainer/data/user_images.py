"""The user's own images in files: in class folders, or named by a table."""

import csv
import io
import itertools
import os
import unicodedata
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from elastictrainer.data.pictures import SUFFIXES, Size, decode, find_problems, has_picture_name, is_hidden
from elastictrainer.data.splits import (
    PARTS,
    REPLACE,
    UNSPLIT,
    VALIDATION_NAMES,
    Contents,
    IndexedSplit,
    as_class_name,
    unreadable_images,
)
from elastictrainer.errors import UnreadableImages, UsageError, abbreviated

LAYOUT = (
    "Expected: train/CLASS/IMAGE, test/CLASS/IMAGE and perhaps val/CLASS/IMAGE, images being "
    f"{' '.join(SUFFIXES)}."
)
_SPLITS = {"train": "train", "test": "test", **dict.fromkeys(VALIDATION_NAMES, "val")}
_DELIMITERS = ",;\t|"
OWN_FOLDERS = ("runs", "profiles")  # that commands make where they are started


@dataclass
class Reading:
    """Settings for reading a data set."""

    skip_damaged: bool = False  # decode every image, and leave out what cannot be read; or refuse it
    left_out: List[str] = field(default_factory=list)  # files; those that `skip_damaged` finds are added
    advice: str = REPLACE  # for the user, about damaged images
    label_column: Optional[str] = None  # of "hf:" data alone; None: `label`, or the only one of classes

    def usable(self, files: Sequence[Path]) -> np.ndarray:
        """Return (n,) bool: the files to use, all but those left out.

        UnreadableImages, which names up to three, where files are missing, empty, damaged, no images or too
        large, and may not be left out.
        """
        names = list(map(str, files))
        passed = set(self.left_out)
        problems = find_problems([name for name in names if name not in passed], self.skip_damaged)
        if problems and not self.skip_damaged:
            raise UnreadableImages(unreadable_images(list(problems.values()), self.advice), list(problems))
        self.left_out += problems
        out = set(self.left_out)
        return np.array([name not in out for name in names], bool)


@dataclass
class FileSplit(IndexedSplit):
    """A split whose images are files: (n,) str paths, and (n,) int labels."""

    files: np.ndarray
    labels: np.ndarray

    def name_of(self, number: int) -> str:
        return str(self.files[number])

    def subset(self, chosen: np.ndarray) -> "FileSplit":
        return FileSplit(self.files[chosen], self.labels[chosen])

    def image(self, number: int, size: Size) -> np.ndarray:
        return decode(str(self.files[number]), size)

    def fingerprint(self) -> Contents:
        """Return the fingerprint; a folder that was moved or copied as a whole has the same contents.

        `names` are the contents without the sizes, which stay when a damaged file is replaced.
        """
        files = [str(file) for file in self.files]
        if len(set(map(os.path.isabs, files))) > 1:  # of a table
            files = list(map(os.path.abspath, files))
        root = os.path.commonpath(files)
        paths = [os.path.relpath(file, root).replace(os.sep, "/") for file in files]
        names = list(zip(paths, map(int, self.labels)))
        return {"contents": list(zip(names, map(os.path.getsize, files))), "names": names}


def read_folder(folder: Path, reading: Reading) -> Tuple[List[str], Dict[str, FileSplit]]:
    """Return the class names, in alphabetical order, and the parts: train, and test and val if any.

    Every file is checked, see `pictures.find_problem`. UsageError for no training part, two validation parts,
    a class missing from a part or without images, an unreadable image.
    """
    if not (folder / "train").is_dir():
        raise UsageError(f"{folder} has no folder 'train'. {LAYOUT}")
    validation = [name for name in VALIDATION_NAMES if (folder / name).is_dir()]
    if len(validation) > 1:
        raise UsageError(
            f"{folder} has the folders {' and '.join(validation)}; one validation part is used: remove the "
            "others, or move them out."
        )
    folders = {"train": folder / "train", "test": folder / "test"}
    if validation:
        folders["val"] = folder / validation[0]
    classes_of = {part: class_folders(path) for part, path in folders.items() if path.is_dir()}
    names = sorted(set().union(*classes_of.values()))
    for part, classes in classes_of.items():
        missing = [name for name in names if name not in classes]
        if missing:
            raise UsageError(
                f"{folders[part]} lacks {abbreviated(missing)}, which another part of the data has. Add "
                "images there, or remove the class from all parts."
            )
    return names, {part: read_classes(classes, reading) for part, classes in classes_of.items()}


def class_folders(folder: Path) -> Dict[str, List[Path]]:
    """Return the classes in a folder, sorted, with their folders; links count, hidden ones do not.

    A class has several where systems wrote its letters with accents in different ways. UsageError for none.
    """
    found: Dict[str, List[Path]] = {}
    for path in sorted(folder.iterdir()):
        own = path.name in OWN_FOLDERS and path.is_dir() and not any(map(has_picture_name, path.iterdir()))
        if path.is_dir() and not is_hidden(path.name) and not own:
            found.setdefault(as_class_name(path.name), []).append(path)
    if not found:
        raise UsageError(f"{folder} has no class folder. {LAYOUT}")
    return dict(sorted(found.items()))


def read_classes(classes: Mapping[str, Sequence[Path]], reading: Reading) -> FileSplit:
    """Return the images directly in class folders, those of a class sorted, labelled by the classes' order.

    UsageError for a class without one, or an unreadable image.
    """
    files_by_class = []
    for folders in classes.values():
        found = [sorted(filter(has_picture_name, folder.iterdir())) for folder in folders]
        files_by_class.append(list(itertools.chain.from_iterable(found)))
        if not files_by_class[-1]:
            raise UsageError(f"{folders[0]} holds no image. {LAYOUT}")
    files = list(itertools.chain.from_iterable(files_by_class))
    labels = np.repeat(np.arange(len(classes)), list(map(len, files_by_class)))
    usable = reading.usable(files)
    for label, folders in enumerate(classes.values()):
        if not usable[labels == label].any():
            raise UsageError(f"{folders[0]} holds no image that can be read. Add some, or remove the class.")
    return FileSplit(np.array(files, str)[usable], labels[usable])


def read_table(path: Path, reading: Reading) -> Tuple[List[str], Dict[str, FileSplit]]:
    """Read the images of a CSV file with the columns path, label and optionally split (train, val or test).

    Paths are relative to the folder of the CSV file. Returns class names in alphabetical order; and the
    images by part, UNSPLIT alone without a column `split`. UsageError where the file cannot be read, a column
    is missing, a field is empty or holds another split (the message gives the line), a class is missing from
    a part, or an image cannot be read.
    """
    columns, rows = _rows(path)
    missing = [column for column in ("path", "label") if column not in columns]
    if missing:
        raise UsageError(
            f"{path} has no column {missing[0]!r}; its first line names {abbreviated(columns) or 'none'}. "
            "Expected: path, label, and perhaps split (train, val or test)."
        )
    twice = [column for column in ("path", "label", "split") if columns.count(column) > 1]
    if twice:
        raise UsageError(f"{path} has two columns {twice[0]!r} (capitals do not count): rename one.")
    if "group" in columns and "split" not in columns:
        raise UsageError(
            f"{path} has a column 'group', which is not read any more. To keep series of photographs "
            "together, add a column split (train, val or test), with one value for each series."
        )
    for line, row in rows.items():
        empty = [column for column in ("path", "label") if not row[column]]
        if empty:
            raise UsageError(f"{path}, line {line}: {empty[0]} is empty.")
        if "split" in columns and row["split"] not in _SPLITS:
            raise UsageError(f"{path}, line {line}: split is {row['split']!r}; allowed: train, val, test.")
    found_names, labels = np.unique(
        [as_class_name(row["label"]) for row in rows.values()], return_inverse=True
    )
    names: List[str] = found_names.tolist()
    first: Dict[str, Tuple[int, int]] = {}
    for (line, row), label in zip(rows.items(), map(int, labels)):
        before, known = first.setdefault(row["path"], (line, label))
        if known != label:
            raise UsageError(
                f"{path}, lines {before} and {line}: {row['path']} is {names[known]!r} and {names[label]!r}; "
                "an image has one label."
            )
    files = [_file(path.parent, row["path"]) for row in rows.values()]
    if files and not any(map(os.path.exists, files)):
        raise UsageError(
            f"{path}: none of its {len(files)} files is there, such as {files[0]}. A path is relative to the "
            f"table's folder, {path.parent.resolve()}."
        )
    usable = reading.usable(files)
    whole = FileSplit(np.array(files, str), labels)
    found_in = [_SPLITS[row["split"]] if "split" in columns else UNSPLIT for row in rows.values()]
    part_of = np.array(found_in, str)
    parts = {part: whole.subset(usable & (part_of == part)) for part in (*PARTS, UNSPLIT)}
    found = {part: split for part, split in parts.items() if split.count}
    expected = [UNSPLIT] if UNSPLIT in found else [part for part in PARTS if part in found or part == "train"]
    for label, name in enumerate(names):
        if not all(part in found and (found[part].labels == label).any() for part in expected):
            where = f"is not in all of {', '.join(expected)}" if "split" in columns else "has no usable image"
            raise UsageError(f"{path}: class {name!r} {where}.")
    return names, found


def _rows(path: Path) -> Tuple[List[str], Dict[int, Dict[str, str]]]:
    """Read a table as spreadsheets write them: its columns, in lower case, and its rows by their last line.

    Fields stand between commas, semicolons, tabs or bars, by its first line; spaces around them do not count,
    nor do rows without any.
    """
    try:
        content = path.read_bytes()
        is_wide = content.startswith((b"\xff\xfe", b"\xfe\xff"))  # Excel's "Unicode text"
        text = content.decode("utf-16" if is_wide else "utf-8-sig")
        first = text.split("\n", 1)[0]
        names_it = first[:4].lower() == "sep=" and len(first) > 4  # a line for Excel alone
        delimiter = first[4] if names_it else max(_DELIMITERS, key=first.count)
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
        lines = [(reader.line_num, [field.strip() for field in row]) for row in reader][names_it:]
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text: save it as UTF-8.") from None
    except (OSError, csv.Error) as error:
        raise UsageError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}.") from None
    columns = [column.lower() for column in lines[0][1]] if lines else []
    rows = {}
    for line, fields in lines[1:]:
        if any("\n" in value or "\r" in value for value in fields):
            raise UsageError(f"{path}, line {line}: a field goes over several lines; is a '\"' missing?")
        if any(fields[len(columns) :]):
            raise UsageError(
                f"{path}, line {line}: {len(fields)} fields, but the first line has {len(columns)}. "
                f"Put a field that contains {delimiter!r} into quotation marks."
            )
        if any(fields):
            rows[line] = dict(itertools.zip_longest(columns, fields[: len(columns)], fillvalue=""))
    return columns, rows


def _file(folder: Path, name: str) -> Path:
    """Return the file that a table names; with slashes or accents of another system if only that is there."""
    spellings = (
        unicodedata.normalize(form, spelt)
        for spelt in (name, name.replace("\\", "/"))
        for form in ("NFC", "NFD")
    )
    candidates = [folder / name, *(folder / spelling for spelling in spellings)]
    return next(filter(os.path.exists, candidates), candidates[0])
