"""TensorFlow, without what its C++ parts write to stderr while they are loaded and no setting of theirs keeps back."""

import os
import sys


def load_tensorflow() -> None:
    """Import it. With --debug on the command line nothing is held back."""
    if "tensorflow" in sys.modules or "--debug" in sys.argv:
        return
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        import tensorflow  # noqa: F401
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
