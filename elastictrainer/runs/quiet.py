"""Import of TensorFlow without the lines that its C++ libraries write to stderr meanwhile."""

import contextlib
import os
import sys
from typing import Iterator


def load_tensorflow() -> None:
    """Import TensorFlow while the process's stderr (file descriptor 2) goes to the null device.

    No setting of TensorFlow's silences those lines. With --debug on the command line nothing is done: the
    later import then shows them.
    """
    if "tensorflow" in sys.modules or "--debug" in sys.argv:
        return
    with silenced():
        import tensorflow  # noqa: F401  # imported for its effect


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Send the process's stderr (file descriptor 2) to the null device in this block."""
    sys.stderr.flush()
    stderr, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(null)
