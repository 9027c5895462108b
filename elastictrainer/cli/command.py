"""The frame of every command: errors become one line on stderr and an exit status; output never ends it."""

import argparse
import contextlib
import os
import signal
import sys
import threading
import traceback
from typing import Any, Callable, Iterator, Optional, Sequence, TextIO

from elastictrainer import __version__
from elastictrainer.errors import RunError, UsageError, reason
from elastictrainer.runs.log import printed


def make_parser(
    name: str, description: str, example: str, usage: Optional[str] = None
) -> argparse.ArgumentParser:
    """Make a parser with the options of every command; `usage` is shown where there are too many of them."""
    parser = argparse.ArgumentParser(
        name, usage=usage, description=description, epilog=example, allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"{name} {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


def add_reading(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--weights",
        choices=("best", "last"),
        help="weights of a run: best (default where there is a validation part) or last",
    )
    parser.add_argument(
        "--trust-model", action="store_true", help="load the model even if that can run its author's code"
    )


def add_trained_model(parser: argparse.ArgumentParser) -> None:
    """Add MODEL, the first argument of a command that uses a trained model, and how it is read."""
    parser.add_argument("model", metavar="MODEL", help="a run folder, a .keras file, or a .tflite file")
    add_reading(parser)
    parser.add_argument(
        "--image-size", type=int, metavar="N", help="height and width in pixels, for a model that takes any"
    )


def run(
    name: str, body: Callable[[Optional[Sequence[str]]], None], arguments: Optional[Sequence[str]] = None
) -> int:
    """Run a command's body; turn its errors into a line on stderr and an exit status.

    With --debug among the `arguments` (of `sys.argv`, without) the traceback is printed too. SIGTERM and
    SIGHUP interrupt as Ctrl-C does. Returns 0 after success; 2 if the request was wrong; 1 if the work
    failed; 130 after an interrupt.
    """
    prepare()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if threading.current_thread() is threading.main_thread():
        hang_up = getattr(signal, "SIGHUP", None)  # the terminal has gone; Windows does not know it
        for number in filter(None, (signal.SIGTERM, hang_up)):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                signal.signal(number, signal.default_int_handler)
    debug = "--debug" in (sys.argv[1:] if arguments is None else arguments)
    try:
        with printed():
            body(arguments)
        sys.stdout.flush()
        return 0
    except KeyboardInterrupt as error:
        print(f"{name}: interrupted. {error}".rstrip(), file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever reads our output, such as `head`, has closed it
        sys.stdout = open(os.devnull, "w")
        return 1
    except Exception as error:
        if debug:
            traceback.print_exc()
        print(f"{name}: {_message_of(error)}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1


def _message_of(error: Exception) -> str:
    if isinstance(error, (UsageError, RunError)):
        return str(error)
    if isinstance(error, OSError):
        return f"failed: {f'{error.filename}: ' if error.filename else ''}{error.strerror or error}."
    kind, why = type(error).__name__, reason(error)
    if isinstance(error, MemoryError) or kind == "ResourceExhaustedError":  # the latter is TensorFlow's
        return "out of memory: a step on so many pixels does not fit. Lower --batch-size or --image-size."
    return f"failed: {kind if why == kind else f'{kind}: {why}'}\nRun again with --debug for details."


class _Unfailing:
    """A text stream like another one; once that cannot be written to, what is written is dropped."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
            self._stream.flush()  # here, where a failure is caught, and not when Python ends
        except (OSError, ValueError):  # ValueError: the stream was closed
            with contextlib.suppress(OSError, ValueError), open(os.devnull, "w") as null:
                os.dup2(null.fileno(), self._stream.fileno())  # so that what is left in it can be written
        return len(text)

    def flush(self) -> None:
        self.write("")


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
    out, err = _Unfailing(sys.stdout), _Unfailing(sys.stderr)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):  # type: ignore[type-var]
        yield
