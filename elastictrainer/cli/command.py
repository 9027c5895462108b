"""The frame of every command: errors become one line on stderr and an exit status."""

import argparse
import itertools
import os
import re
import signal
import sys
import threading
import traceback
from typing import Any, Callable, Optional, Sequence

from elastictrainer import __version__
from elastictrainer.cli.output import prepare
from elastictrainer.errors import RunError, UsageError
from elastictrainer.runs.log import printed

_WEIGHTS_HELP = "a run's weights: best (of a run with a validation part, where they are the default) or last"


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


def add_weights(parser: argparse.ArgumentParser) -> None:
    """Add the option that chooses between a run's best and last weights."""
    parser.add_argument("--weights", choices=("best", "last"), help=_WEIGHTS_HELP)


def add_trained_model(parser: argparse.ArgumentParser) -> None:
    """Add the options of a command that uses a trained model: MODEL first, and how it is read."""
    parser.add_argument(
        "model", metavar="MODEL", help="a run folder, a .keras file, a SavedModel folder, or a .tflite file"
    )
    add_weights(parser)
    parser.add_argument(
        "--image-size", type=int, metavar="N", help="height and width in pixels, for a model that takes any"
    )
    parser.add_argument(
        "--image-memory",
        metavar="SIZE",
        help="memory for decoding a picture; a larger one raises an error (256MB, or the run's setting)",
    )
    parser.add_argument(
        "--trust-model", action="store_true", help="load the model even if that can run code of its author's"
    )


def run(
    name: str, body: Callable[[Optional[Sequence[str]]], None], arguments: Optional[Sequence[str]] = None
) -> int:
    """Run a command's body and turn its errors into a line on stderr and an exit status.

    With --debug among the arguments the traceback is printed too. SIGTERM and SIGHUP interrupt the body as
    Ctrl-C does.

    Args:
        name: of the command, for the error line.
        body: does the work; it gets `arguments`.
        arguments: the command line; None: `sys.argv[1:]`.

    Returns:
        0 after success; 2 if the request was wrong; 1 if the work failed; 130 after an interrupt.
    """
    prepare()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):  # SIGHUP: the terminal has gone
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                signal.signal(number, _interrupt)
    debug = "--debug" in (sys.argv[1:] if arguments is None else arguments)
    try:
        with printed():
            body(arguments)
        sys.stdout.flush()
        return 0
    except (UsageError, RunError) as error:
        if debug:
            traceback.print_exc()
        print(f"{name}: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt as error:
        print(f"{name}: interrupted. {error}".rstrip(), file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever reads our output, such as `head`, has closed it
        sys.stdout = open(os.devnull, "w")
        return 1
    except OSError as error:
        if debug:
            traceback.print_exc()
        where = f"{error.filename}: " if error.filename else ""
        print(f"{name}: failed: {where}{error.strerror or error}.", file=sys.stderr)
        return 1
    except MemoryError:
        print(f"{name}: out of memory; lower --batch-size or --image-size.", file=sys.stderr)
        return 1
    except Exception as error:
        if debug:
            traceback.print_exc()
        print(f"{name}: failed: {type(error).__name__}: {_reason(error)}", file=sys.stderr)
        print("Run again with --debug for details.", file=sys.stderr)
        return 1


def _reason(error: Exception) -> str:
    """Return the line of an error's message that names the cause.

    TensorFlow quotes the way there before it, and Keras what a layer was called with behind it.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    traced = "in user code:" in lines
    lines = list(itertools.takewhile(lambda line: not line.startswith("Call arguments received"), lines))
    lines = [line for line in lines if not re.match(r"(\w+: )?Exception encountered when calling", line)]
    if traced:
        lines = [line for line in lines if re.match(r"\w+(Error|Exception): ", line)][-1:] or lines[-1:]
    return lines[0].removeprefix(f"{type(error).__name__}: ") if lines else ""


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt
