"""Signals that end a run: the step is finished first; a second one ends the process at once."""

import signal
import threading
from typing import Any, Dict

# SIGHUP, that the terminal has gone, is not known to Windows.
_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class HandledSignals:
    """While entered, SIGINT, SIGTERM and SIGHUP have a handler. Inert outside the main thread."""

    def __init__(self, handler: Any) -> None:
        """`handler`: as for `signal.signal`."""
        self._handler = handler
        self._before: Dict[signal.Signals, Any] = {}

    def __enter__(self) -> "HandledSignals":
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:  # nohup, or a shell's background job
                    self._before[number] = signal.signal(number, self._handler)
        return self

    def __exit__(self, *_: Any) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}


class Interruption(HandledSignals):
    """While entered, notes SIGINT, SIGTERM and SIGHUP instead of obeying them.

    Attributes:
        asked: whether a signal has come.
    """

    def __init__(self) -> None:
        super().__init__(self._note)
        self.asked = False

    def __enter__(self) -> "Interruption":
        self.asked = False
        super().__enter__()
        return self

    def _note(self, number: int, frame: Any) -> None:
        self.asked = True
        # The next one is the operating system's to deal with, even inside a long op.
        for held in self._before:
            signal.signal(held, signal.SIG_DFL)
