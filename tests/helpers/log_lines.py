"""The lines of the log, for tests of what a user is told."""

import logging
from typing import Callable, List

from elastictrainer.runs.log import LOG


class _Listener(logging.Handler):
    def __init__(self, take: Callable[[str], None]):
        super().__init__()
        self.take = take

    def emit(self, record):
        self.take(record.getMessage())


def listen(*more: Callable[[str], None]) -> List[str]:
    """Return a list that gets the lines of the log from now on, in place of the list returned before.

    Args:
        more: functions that get the lines as well.
    """
    lines: List[str] = []
    LOG.handlers[:] = [_Listener(take) for take in (lines.append, *more)]
    LOG.setLevel(logging.INFO)
    return lines
