"""Write files and folders such that a reader never sees half of one."""

import contextlib
import csv
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, Iterable, Iterator, Union

_PART = ".part"


@contextlib.contextmanager
def atomic_write(path: Union[str, Path]) -> Iterator[Path]:
    """Yield a path next to `path` to write a file or folder to; rename it to `path` when the block succeeds.

    When the block raises, what was written is removed and `path` keeps what it had. A file's suffix is kept,
    because libraries choose a format by it. A folder that exists makes way for the new one. All is on the
    disk before it is renamed.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.stem}.{os.getpid()}{_PART}{path.suffix}")
    former = path.with_name(f".{path.stem}.{os.getpid()}.former{_PART}")
    try:
        yield unfinished
        for written in [*unfinished.rglob("*"), unfinished] if unfinished.is_dir() else [unfinished]:
            to_disk(written)
        if unfinished.is_dir() and path.is_dir():
            os.replace(path, former)
        os.replace(unfinished, path)
        to_disk(path.parent)
    finally:
        _remove(former)
        _remove(unfinished)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def remove_unfinished(folder: Path, of: str = "") -> None:
    """Remove what killed writers left in `folder`: of all files, or of the one named `of`."""
    pattern = f".{Path(of).stem}.*{_PART}{Path(of).suffix}" if of else f".*{_PART}*"
    for unfinished in folder.glob(pattern):
        _remove(unfinished)


def set_aside(path: Path) -> Path:
    """Rename a damaged file or folder, so that nobody takes it for whole; returns its new path."""
    aside, number = path.with_name(f"damaged-{path.name}"), 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"damaged-{path.name}-{number}")
    path.rename(aside)
    return aside


@contextlib.contextmanager
def without_wildcards(folder: Path) -> Iterator[Path]:
    """Yield a path to `folder` without `[`, `*`, `?` and a backslash: TensorFlow reads by pattern."""
    if not set("[*?\\") & set(str(folder)):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="elastictrainer-") as temporary:
        link = Path(temporary) / "folder"
        link.symlink_to(folder.resolve(), target_is_directory=True)
        yield link


def write_text(path: Union[str, Path], text: str) -> None:
    """Write `text` as UTF-8, completely or not at all; bytes of a file name that are none, as escapes."""
    with atomic_write(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8", errors="backslashreplace")


def write_json(path: Union[str, Path], value: Any) -> None:
    """Write `value` as JSON, completely or not at all. NaN and infinity are refused: they are no JSON."""
    write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def write_csv(path: Union[str, Path], header: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """Write a table as CSV, completely or not at all; names of files with the bytes that they have."""
    with atomic_write(path) as unfinished:
        with open(unfinished, "w", newline="", encoding="utf-8", errors="surrogateescape") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(header)
            writer.writerows(rows)


def append_line(path: Union[str, Path], line: str) -> None:
    """Append `line` and a line feed to a file; of a full disk or a power failure a torn line may be left."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(f"{line}\n")
        file.flush()
        os.fsync(file.fileno())


def to_disk(path: Path) -> None:
    """Wait until a file, or a folder's list of entries, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
