"""Times as people write them: 10m."""

import re

from elastictrainer.errors import UsageError

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def seconds_of(text: str) -> float:
    """Return the seconds that `text` means, such as "90s" or "1.5h"; UsageError where it means none."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", str(text).lower())
    if not found or found[2] not in _UNITS or not float(found[1]):
        raise UsageError(f"{text!r} is no time. Valid: a number with s, m or h, such as 90s, 10m or 1.5h.")
    return float(found[1]) * _UNITS[found[2]]
