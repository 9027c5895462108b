"""Ctrl-C and a request to terminate: the work at hand is finished first, a second one ends the process at once."""

import signal
import threading
from typing import Any, Dict

from elastictrainer.errors import Interrupted

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """While entered, holds SIGINT and SIGTERM back until `check` is called. In other threads than the main one: inert.

    Attributes:
        asked: whether a signal has come.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: Dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Interruption":
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:  # nohup, or a shell's background job
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: Any) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _note(self, number: int, frame: Any) -> None:
        self.asked = True
        for (
            held
        ) in self._before:  # the next one is the operating system's to deal with, even inside a long op
            signal.signal(held, signal.SIG_DFL)

    def check(self) -> None:
        """Raise Interrupted if a signal has come."""
        if self.asked:
            raise Interrupted
