"""The program's own files in a run folder, and whether this user on this machine wrote them."""

import contextlib
import hashlib
import hmac
import os
import re
import secrets
import shutil
from pathlib import Path
from typing import List, Optional, Sequence

from elastictrainer.errors import UsageError
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
    "kept.npz",
)
EVALUATION = (
    "summary.json",
    "classes.csv",
    "confusion.csv",
    "predictions.csv",
    "confusion.png",
    "mistakes.png",
)
EXPORTS = {
    "saved_model": "saved_model",
    "tflite": "model.tflite",
    "tflite-int8": "model-int8.tflite",
    "tflite-full-int8": "model-full-int8.tflite",
    "keras": "deployed.keras",
}
MODEL_CARD = "README.md"
_CHECKPOINT = re.compile(r"step-(\d{9})")
_PLACES = ("checkpoints", "events", "export", "evaluation")  # folders of a run folder


def mark(folder: Path, signature: str = "") -> None:
    """Make `folder` known as a run's, with its user's `signature` of its config."""
    write_text(folder / MARKER, f"{_MARKER_TEXT}{signature}\n")


def signature_of(folder: Path) -> str:
    """Return the signature that `mark` was given; empty where the folder is not marked."""
    lines = (
        (folder / MARKER).read_text(encoding="utf-8", errors="replace").splitlines()
        if is_marked(folder)
        else []
    )
    return lines[1] if len(lines) > 1 else ""


def is_marked(folder: Path) -> bool:
    """Return whether this program made `folder`."""
    marker = folder / MARKER
    return marker.is_file() and not marker.is_symlink()


def checkpoints(folder: Path) -> List[Path]:
    """Return the checkpoints in `folder`, the newest first, and no other files."""
    found = [path for path in _entries(folder) if _CHECKPOINT.fullmatch(path.name)]
    return sorted((path for path in found if path.is_dir() and not path.is_symlink()), reverse=True)


def checkpoint_name(step: int) -> str:
    """Return the name of the checkpoint after `step` steps."""
    return f"step-{step:09d}"


def refuse_links(folder: Path) -> None:
    """Raise UsageError if a name that the program writes in `folder` is a link, which leads elsewhere."""
    for name in (MARKER, *FILES, *_PLACES):
        inner = _entries(folder / name) if name in ("checkpoints", "export", "evaluation") else []
        for path in (folder / name, *inner):
            if path.is_symlink():
                raise UsageError(f"{path} is a link. A run folder holds none: choose another --output.")


def refuse_to_replace(folder: Path, needed: Sequence[Path]) -> None:
    """Raise UsageError if replacing the run in `folder` could delete files that the user still needs.

    Args:
        folder: of the earlier run.
        needed: paths that the new run reads; the working directory and the user's home are added.
    """
    place = folder.resolve()
    for path in (Path.cwd(), Path.home(), *needed):
        if place == path.resolve() or place in path.resolve().parents:
            raise UsageError(
                f"--overwrite would remove files of {folder}, in which {path} lies. Choose another --output."
            )


def remove_own(folder: Path) -> None:
    """Remove the program's own files in `folder`, but the marker; links, and files of other names, stay."""
    for path in checkpoints(folder / "checkpoints"):
        shutil.rmtree(path)
    for path in (folder / "events").rglob("events.out.tfevents.*"):
        _remove_file(path)
    for name in (*EXPORTS.values(), MODEL_CARD):
        path = folder / "export" / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            _remove_file(path)
    for name in EVALUATION:
        _remove_file(folder / "evaluation" / name)
    for place in _PLACES:
        _remove_empty(folder / place)
    for name in FILES:
        _remove_file(folder / name)


def _remove_file(path: Path) -> None:
    if path.is_file() and not path.is_symlink():
        path.unlink()


def _remove_empty(folder: Path) -> None:
    """Remove `folder` and those in it, as far as they are empty."""
    if folder.is_dir() and not folder.is_symlink():
        for inner in _entries(folder):
            _remove_empty(inner)
        with contextlib.suppress(OSError):  # it is not empty
            folder.rmdir()


def _entries(folder: Path) -> List[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else []


_KEY = "elastictrainer/key"


def signature(content: bytes) -> str:
    """Sign `content` so that only this user of this machine can; empty where no key can be kept."""
    key = _key(make=True)
    return _signature(key, content) if key else ""


def is_own(content: bytes, signed: str) -> bool:
    """Whether `signed` is this user's signature of `content`."""
    key = _key(make=False)
    return key is not None and hmac.compare_digest(_signature(key, content).encode(), signed.encode())


def _signature(key: bytes, content: bytes) -> str:
    return hmac.new(key, content, hashlib.sha256).hexdigest()


def _key(make: bool) -> Optional[bytes]:
    """The user's key, in a file that nobody else can read; None where there is none and none can be kept."""
    path = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / _KEY
    try:
        if make and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            before = os.umask(0o077)
            try:
                write_text(path, secrets.token_hex(32))
            finally:
                os.umask(before)
        return path.read_bytes()
    except OSError:
        return None
