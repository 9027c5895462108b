"""Writing a file so that a reader never sees half of it."""

import contextlib
import json
import os
from pathlib import Path
from typing import Any, Iterator, Union


@contextlib.contextmanager
def written_beside(path: Union[str, Path]) -> Iterator[Path]:
    """Yield a path beside `path` to write to; rename it to `path` when the block ends well.

    When the block raises, the unfinished file is removed and `path` keeps what it had. The suffix is kept, because
    libraries choose a format by it.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.stem}.{os.getpid()}.part{path.suffix}")
    try:
        yield beside
        with open(beside, "rb") as written:
            os.fsync(written.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def write_text(path: Union[str, Path], text: str) -> None:
    """Write `text` as UTF-8, whole or not at all."""
    with written_beside(path) as beside:
        beside.write_text(text, encoding="utf-8")


def write_json(path: Union[str, Path], value: Any) -> None:
    """Write `value` as JSON, whole or not at all. NaN and infinity are refused: they are no JSON."""
    write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")
