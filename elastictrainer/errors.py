"""Errors that end a command: the request was wrong (exit 2), the work failed (1), or a signal came (130)."""

import difflib
import itertools
import re
from typing import Iterable, Optional, Sequence


class UsageError(ValueError):
    """A request that cannot be met as asked. The message names the cause and the next step."""


class RunError(RuntimeError):
    """The request was fine, the work failed."""


class DataError(RunError):
    """The training data cannot be read."""


class NotFinite(RunError):
    """A value that training or scoring computes is NaN or infinite."""


class _OfFiles(Exception):
    def __init__(self, message: str, files: Sequence[str] = ()):
        super().__init__(message)
        self.files = list(files)


class DamagedImages(_OfFiles, DataError):
    """Images cannot be decoded. `files` names those that are files of their own."""


class UnreadableImages(_OfFiles, UsageError):
    """Images are missing or damaged, as was seen before any was decoded. `files` names them."""


class Interrupted(KeyboardInterrupt):
    """A signal asked the work to end. The message says how to go on with it."""


def unknown(kind: str, value: str, allowed: Iterable[str], listed: Optional[str] = None) -> UsageError:
    """Make an error for a name of a `kind` that is not among `allowed`, with the nearest valid one.

    `listed` is a text to print instead of the valid names, where they are many.
    """
    allowed = list(allowed)
    near = difflib.get_close_matches(value, allowed, n=1, cutoff=0.4)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return UsageError(f"unknown {kind} {value!r}.{hint} Valid: {listed or ', '.join(allowed)}.")


def shortened(text: str, most: int) -> str:
    """Return the text in one line, cut to so many characters."""
    text = " ".join(text.split())
    return text if len(text) <= most else text[:most] + "..."


def abbreviated(items: Sequence[str]) -> str:
    """Return the first three items, separated by commas, and how many more there are."""
    return ", ".join(items[:3]) + (f" and {len(items) - 3} more" if len(items) > 3 else "")


def reason(error: Exception) -> str:
    """Return the line of an error's message that names the cause.

    TensorFlow writes the names of ops and devices into it, and quotes the way there before it; Keras says
    behind it what a layer was called with.
    """
    text = re.sub(
        r"\{\{.*?\}\}|\[\[.*?\]\]|\[Op:.*?\]( name:.*)?", "", str(getattr(error, "message", None) or error)
    )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    traced = "in user code:" in lines
    lines = list(itertools.takewhile(lambda line: not line.startswith("Call arguments received"), lines))
    lines = [line for line in lines if not re.match(r"(\w+: )?Exception encountered when calling", line)]
    if traced:
        lines = [line for line in lines if re.match(r"\w+(Error|Exception): ", line)][-1:] or lines[-1:]
    kind = type(error).__name__
    return lines[0].removeprefix(f"{kind}: ") if lines else kind
