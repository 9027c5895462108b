"""Times and sizes as people write them: 10m, 2GB."""

import re
from typing import Dict, Optional

from elastictrainer.errors import UsageError

_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_BYTES = {"": 1.0, "b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9}


def _amount(text: str, units: Dict[str, float], zero: bool = False) -> Optional[float]:
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text.lower())
    if not found or found[2] not in units or not (zero or float(found[1])):
        return None
    return float(found[1]) * units[found[2]]


def parse_seconds(text: str) -> float:
    """Return the seconds that `text` means, such as "90s" or "1.5h"; UsageError where it means none."""
    seconds = _amount(text, _SECONDS)
    if seconds is None:
        raise UsageError(f"{text!r} is no time. Valid: a number with s, m or h, such as 90s, 10m or 1.5h.")
    return seconds


def parse_bytes(text: str, or_else: str = "") -> int:
    """Return the bytes that `text` means, such as "2GB", "500 MB" or "0"; UsageError where it means none.

    `or_else` is what else would have been valid, for the message.
    """
    size = _amount(text, _BYTES, zero=True)
    if size is None:
        raise UsageError(f"{text!r} is no size. Valid: {or_else}a number with kB, MB or GB, such as 500MB.")
    return int(size)


def parse_limit(text: str) -> Optional[int]:
    """Return the bytes that `text` means, None for "auto"; UsageError where it means none."""
    return None if text == "auto" else parse_bytes(text, "auto, or ")
