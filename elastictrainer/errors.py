"""The two ways a command fails: the request was wrong (exit 2), or the work failed (exit 1)."""

import difflib
from typing import Iterable


class UsageError(ValueError):
    """What was asked for cannot be done as asked. The message names the culprit and the next step."""


class RunError(RuntimeError):
    """The request was fine, the work failed."""


def unknown(kind: str, value: str, allowed: Iterable[str]) -> UsageError:
    """An error for a name that is not among `allowed`, with the nearest valid one.

    Args:
        kind: what the name stands for, e.g. "model".
        value: the name that was given.
        allowed: the valid names, in the order to print them.
    """
    allowed = list(allowed)
    near = difflib.get_close_matches(value, allowed, n=1, cutoff=0.4)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return UsageError(f"unknown {kind} {value!r}.{hint} Valid: {', '.join(allowed)}.")
