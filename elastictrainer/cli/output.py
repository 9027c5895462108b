"""Output that never ends a run: its reader may go, its disk be full, its characters be too few."""

import contextlib
import os
import sys
from typing import Any, Iterator


class Unfailing:
    """A text stream like another one; once that cannot be written to, what is written is dropped."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write `text`; returns its length."""
        try:
            self._stream.write(text)
        except (OSError, ValueError):  # ValueError: the stream was closed
            self._drop()
        return len(text)

    def flush(self) -> None:
        """Pass on what is buffered."""
        try:
            self._stream.flush()
        except (OSError, ValueError):
            self._drop()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _drop(self) -> None:
        """Let the file descriptor lead nowhere, so that no later write or flush fails."""
        with contextlib.suppress(OSError, ValueError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._stream.fileno())
            os.close(null)


def prepare() -> None:
    """Give the process the three standard streams, whatever was closed, and let them write any character.

    Without them the next file that is opened would take their number, and what libraries write to stderr.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number is this one
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))
        stream = getattr(sys, name)
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


@contextlib.contextmanager
def unfailing() -> Iterator[None]:
    """Let printing fail silently in this block."""
    prepare()
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = Unfailing(sys.stdout), Unfailing(sys.stderr)  # type: ignore[assignment]
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr = before
