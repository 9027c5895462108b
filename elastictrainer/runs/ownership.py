"""The program's own files in a run folder, and whether this user on this machine wrote them."""

import contextlib
import hashlib
import hmac
import os
import re
import secrets
import shutil
from pathlib import Path
from typing import Iterator, List, Sequence

from elastictrainer.errors import UsageError
from elastictrainer.registry import EXPORT_FILES
from elastictrainer.runs.files import write_text

MARKER = ".elastictrainer"
_MARKER_TEXT = "et-train made this folder; with --overwrite it removes what it has written here.\n"
FILES = (
    "config.yaml",
    "environment.json",
    "metrics.jsonl",
    "selections.jsonl",
    "summary.json",
    "profile.json",
    "model.keras",
    "best.keras",
)
EVALUATION = (
    "summary.json",
    "classes.csv",
    "confusion.csv",
    "predictions.csv",
    "confusion.png",
    "mistakes.png",
)
MODEL_CARD = "README.md"
_CHECKPOINT = re.compile(r"step-(\d{9})")
_FOLDERS = ("checkpoints", "events", "export", "evaluation", "kept")


def mark(folder: Path, config: bytes = b"") -> None:
    """Make `folder` known as a run's, with its user's signature of its `config` where there is one."""
    write_text(folder / MARKER, f"{_MARKER_TEXT}{_signature(config) if config else ''}\n")


def is_own(folder: Path, config: bytes) -> bool:
    """Return whether this user of this machine marked the `folder` with this `config`."""
    signature = _signature(config, make_key=False)
    marked = (folder / MARKER).read_bytes() if is_marked(folder) else b""
    return bool(signature) and hmac.compare_digest(marked, f"{_MARKER_TEXT}{signature}\n".encode())


def is_marked(folder: Path) -> bool:
    return _is_plain(folder / MARKER)


def checkpoints(folder: Path) -> List[Path]:
    """Return the checkpoints in `folder`, the newest first, and no other files."""
    return [path for path in reversed(_entries(folder)) if _is_checkpoint(path) and _is_folder(path)]


def checkpoint_name(step: int) -> str:
    return f"step-{step:09d}"


def refuse_links(folder: Path) -> None:
    """Raise UsageError if a name that the program writes in `folder` is a link, which leads elsewhere."""
    for path in (folder / MARKER, *(folder / name for name in _FOLDERS), *_own(folder)):
        if path.is_symlink():
            raise UsageError(f"{path} is a link. A run folder holds none: choose another --output.")


def refuse_to_replace(folder: Path, needed: Sequence[Path]) -> None:
    """Raise UsageError if replacing what is in `folder` could delete files that the user still needs.

    These are all files where no run made the folder, those in `needed`, the working directory and the home.
    """
    if not is_marked(folder):
        raise UsageError(
            f"{folder} is not a run folder that this version made; it will not be overwritten. Choose "
            "another --output."
        )
    place = folder.resolve()
    for path in (Path.cwd(), Path.home(), *needed):
        if place == path.resolve() or place in path.resolve().parents:
            raise UsageError(
                f"--overwrite would remove files of {folder}, in which {path} lies. Choose another --output."
            )


def remove_own(folder: Path) -> None:
    """Remove the program's own files in `folder`, but the marker; links, and files of other names, stay."""
    for path in _own(folder):
        if _is_folder(path) and not path.suffix:  # a checkpoint, or the SavedModel
            shutil.rmtree(path)
        elif _is_plain(path):
            path.unlink()
    for name in _FOLDERS:
        for inner, _, _ in os.walk(folder / name, topdown=False):
            with contextlib.suppress(OSError):  # it is not empty
                os.rmdir(inner)


def _own(folder: Path) -> Iterator[Path]:
    """Yield every path that the program writes in a run folder, whether it is there or not."""
    yield from (folder / name for name in FILES)
    yield from filter(_is_checkpoint, _entries(folder / "checkpoints"))
    yield from (folder / "events").rglob("events.out.tfevents.*")
    yield from (folder / "kept").glob("*/new-*.png")
    yield from (folder / "kept").glob("*/old-*.png")
    yield from (folder / "export" / name for name in (*EXPORT_FILES.values(), MODEL_CARD))
    yield from (folder / "evaluation" / name for name in EVALUATION)


def _is_checkpoint(path: Path) -> bool:
    return _CHECKPOINT.fullmatch(path.name) is not None


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _entries(folder: Path) -> List[Path]:
    return sorted(folder.iterdir()) if _is_folder(folder) else []


def _signature(content: bytes, make_key: bool = True) -> str:
    """Sign `content` so that only this user of this machine can; empty where no key can be kept."""
    path = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "elastictrainer" / "key"
    try:
        if make_key and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            before = os.umask(0o077)  # nobody else can read it
            try:
                write_text(path, secrets.token_hex(32))
            finally:
                os.umask(before)
        return hmac.new(path.read_bytes(), content, hashlib.sha256).hexdigest()
    except OSError:
        return ""
