"""Sizes as people write them: 2GB."""

import re
from typing import Optional

from elastictrainer.errors import UsageError

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9}


def bytes_of(text: str, or_else: str = "") -> int:
    """Return the bytes that `text` means, such as "2GB", "500 MB" or "0"; UsageError where it means none.

    `or_else` is what else would have been valid, for the message.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text.lower())
    if not found or found[2] not in _UNITS:
        raise UsageError(f"{text!r} is no size. Valid: {or_else}a number with kB, MB or GB, such as 500MB.")
    return int(float(found[1]) * _UNITS[found[2]])


def limit_of(text: str) -> Optional[int]:
    """Return the bytes that `text` means, None for "auto"; UsageError where it means none."""
    return None if text == "auto" else bytes_of(text, "auto, or ")
