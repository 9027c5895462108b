"""The lines that tell a user how a run goes: one logger, and a handler that prints them as they are."""

import contextlib
import logging
import sys
from typing import Any, Iterator

LOG = logging.getLogger("elastictrainer")


class Terminal(logging.Handler):
    """Prints to stdout, above tqdm's progress `bar` if one is open."""

    bar: Any = None

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            print(record.getMessage(), file=sys.stderr, flush=True)
        else:
            self.line(record.getMessage())

    def line(self, text: str) -> None:
        if self.bar is None:
            print(text, flush=True)
        else:
            self.bar.write(text)


TERMINAL = Terminal()


@contextlib.contextmanager
def printed(enabled: bool = True) -> Iterator[None]:
    """Print the log in this block, unless the logger has a handler already."""
    if not enabled or LOG.handlers:
        yield
        return
    LOG.addHandler(TERMINAL)
    level = LOG.level
    if level == logging.NOTSET:  # else the user has chosen one
        LOG.setLevel(logging.INFO)
    propagates, LOG.propagate = LOG.propagate, False  # once, whatever the root logger does
    try:
        yield
    finally:
        LOG.removeHandler(TERMINAL)
        LOG.setLevel(level)
        LOG.propagate = propagates
