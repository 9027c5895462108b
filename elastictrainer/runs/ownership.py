"""The program's own files in a run folder, and whether this user on this machine wrote them."""

import contextlib
import hashlib
import hmac
import os
import re
import secrets
import shutil
from pathlib import Path
from typing import List, Sequence

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
_PLACES = ("checkpoints", "events", "export", "evaluation", "kept")  # folders of a run folder


def mark(folder: Path, signature: str = "") -> None:
    """Make `folder` known as a run's, with its user's `signature` of its config."""
    write_text(folder / MARKER, f"{_MARKER_TEXT}{signature}\n")


def signature_of(folder: Path) -> str:
    """Return the signature that `mark` was given; empty where the folder is not marked."""
    if not is_marked(folder):
        return ""
    _, *rest = (folder / MARKER).read_text(encoding="utf-8", errors="replace").splitlines() or [""]
    return rest[0] if rest else ""


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
        inner = _entries(folder / name) if name in ("checkpoints", "export", "evaluation", "kept") else []
        for path in (folder / name, *inner):
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
    for path in [*checkpoints(folder / "checkpoints"), folder / "export" / EXPORT_FILES["saved_model"]]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
    exported = (*EXPORT_FILES.values(), MODEL_CARD)
    for path in (
        *(folder / "events").rglob("events.out.tfevents.*"),
        *(folder / "kept").glob("*/new-*.png"),
        *(folder / "kept").glob("*/old-*.png"),
        *(folder / "export" / name for name in exported),
        *(folder / "evaluation" / name for name in EVALUATION),
        *(folder / name for name in FILES),
    ):
        if path.is_file() and not path.is_symlink():
            path.unlink()
    for place in _PLACES:
        for inner, _, _ in os.walk(folder / place, topdown=False):
            with contextlib.suppress(OSError):  # it is not empty
                os.rmdir(inner)


def _entries(folder: Path) -> List[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else []


def signature(content: bytes, make_key: bool = True) -> str:
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


def is_own(content: bytes, signed: str) -> bool:
    """Return whether `signed` is this user's signature of `content`."""
    expected = signature(content, make_key=False)
    return bool(expected) and hmac.compare_digest(expected.encode(), signed.encode())
