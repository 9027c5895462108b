"""Files that are written completely or not at all, and read so that nothing in them surprises."""

import contextlib
import csv
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, Optional, Union

import yaml

from elastictrainer.errors import UsageError, shortened

_PART = ".part"
_FORMER = f".former{_PART}"
_LARGEST_YAML = 100_000  # bytes; a line for each setting is a fraction, and more would take seconds to read
_SCALARS = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null", "timestamp")}


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
    former = path.with_name(f".{path.name}{_FORMER}")
    try:
        yield unfinished
        for written in [*unfinished.rglob("*"), unfinished] if unfinished.is_dir() else [unfinished]:
            to_disk(written)
        if unfinished.is_dir() and path.is_dir():
            os.replace(path, former)
        os.replace(unfinished, path)
        to_disk(path.parent)
        _remove(former)
    finally:
        _put_back(former)
        _remove(unfinished)


def _put_back(former: Path) -> None:
    """Give the folder that was to be replaced its name again, where nothing has taken its place."""
    path = former.with_name(former.name[1 : -len(_FORMER)])
    if path.exists():
        _remove(former)
    elif former.exists():
        os.replace(former, path)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def remove_unfinished(folder: Path) -> None:
    """Remove what killed writers left in `folder`."""
    for former in folder.glob(f".*{_FORMER}"):
        _put_back(former)
    for unfinished in folder.glob(f".*{_PART}*"):
        _remove(unfinished)


def to_disk(path: Path) -> None:
    """Wait until a file, or a folder's list of entries, is on the disk."""
    on_windows = os.name == "nt"  # where no folder can be opened, and a file only to be written
    if on_windows and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDWR if on_windows else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
    """Yield a path to `folder` without the wildcards of patterns, by which TensorFlow reads."""
    if not (set("[*?\\") - {os.sep}) & set(str(folder)):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="elastictrainer-") as temporary:
        link = Path(temporary) / "folder"
        link.symlink_to(folder.resolve(), target_is_directory=True)
        yield link


def write_text(path: Union[str, Path], text: str) -> None:
    """Write `text` as UTF-8, completely or not at all; bytes of a file name that are none, as escapes."""
    with atomic_write(path) as unfinished:
        with open(unfinished, "w", newline="\n", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)


def write_json(path: Union[str, Path], value: object) -> None:
    """Write `value` as JSON, completely or not at all. NaN and infinity are refused: they are no JSON."""
    write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def write_csv(path: Union[str, Path], header: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """Write a table as CSV, completely or not at all; names of files with the bytes that they have."""
    with atomic_write(path) as unfinished:
        with open(unfinished, "w", newline="", encoding="utf-8", errors="surrogateescape") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(header)
            writer.writerows(rows)


def append_line(path: Union[str, Path], line: str) -> None:
    """Append `line` and a line feed to a file; of a full disk or a power failure a torn line may be left."""
    with open(path, "a", newline="\n", encoding="utf-8") as file:
        file.write(f"{line}\n")
        file.flush()
        os.fsync(file.fileno())


def render(template: str, **values: object) -> str:
    """Fill in a template of the package's assets; HTML templates escape their `values`."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("elastictrainer", "assets"),
        autoescape=template.endswith(".html.j2"),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    return environment.get_template(template).render(**values)


def loads(text: Union[str, bytes]) -> Any:
    """Parse JSON; ValueError or RecursionError where it is none. NaN and infinity are none."""

    def no_number(word: str) -> float:
        raise ValueError(f"{word} is not JSON")

    return json.loads(text, parse_constant=no_number)


def yaml_texts(path: Union[str, Path]) -> Dict[str, Optional[str]]:
    """Return values by key as they stand in a file of `key: value` lines; None for an empty one or `null`.

    YAML's own reading of plain words (`off` is false, `010` is eight, `1:30` is ninety) is left to whoever
    knows what a key stands for. UsageError where the file cannot be read, is none such, or has a key twice.
    """
    nodes = _scalars(Path(path))
    return {key: None if node.tag.endswith(":null") else node.value for key, node in nodes.items()}


def yaml_values(path: Union[str, Path]) -> Dict[str, Any]:
    """Return values by key as YAML takes them, for files that this program wrote; raises as `yaml_texts`."""
    nodes, construct = _scalars(Path(path)), yaml.SafeLoader("").construct_object
    try:
        return {key: construct(node) for key, node in nodes.items()}
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise UsageError(f"{path} is not valid YAML: {shortened(str(error), 200)}") from None


def _scalars(path: Path) -> Dict[str, yaml.ScalarNode]:
    try:
        content = path.read_bytes()
        if len(content) > _LARGEST_YAML:
            raise ValueError(f"{len(content)} bytes are too many for settings; is it another file?")
        root = yaml.compose(content.decode("utf-8"), Loader=yaml.SafeLoader)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}.") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: not UTF-8 either
        raise UsageError(f"{path} is not valid YAML: {shortened(str(error), 200)}") from None
    if root is not None and not isinstance(root, yaml.MappingNode):
        raise UsageError(f"{path} must hold `key: value` lines, one for each setting.")
    found: Dict[str, yaml.ScalarNode] = {}
    for key, value in root.value if root else ():
        line = f"{path}, line {key.start_mark.line + 1}"
        if not all(isinstance(node, yaml.ScalarNode) and node.tag in _SCALARS for node in (key, value)):
            culprit = key.value if isinstance(key, yaml.ScalarNode) else "its key"
            raise UsageError(f"{line}: {culprit} must be a single value.")
        if key.value in found:
            raise UsageError(f"{line}: {key.value!r} is there a second time; leave one out.")
        found[key.value] = value
    return found
