"""Fine-tune one model on many devices with Flower: each trains what it can within the time of a round."""

import importlib.util

from elastictrainer.errors import UsageError


def require_flower() -> None:
    """Raise a UsageError, with the command that installs it, where Flower is missing."""
    if importlib.util.find_spec("flwr") is None:
        raise UsageError(
            "a fleet needs Flower: pip install '.[flower]' in the folder of the clone (Keras 3 stack: Python "
            "3.11 or later; on x86-64 3.12 or later)."
        )
