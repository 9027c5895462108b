"""A YAML file of `key: value` lines, read so that nothing in it surprises: single values.

YAML's own reading of plain words (`off` is false, `010` is eight, `1:30` is ninety) is left to whoever knows
what a key stands for: `texts` gives values as they stand in the file.
"""

from pathlib import Path
from typing import Any, Dict, Optional, Union

import yaml

from elastictrainer.errors import UsageError, shortened

_LARGEST = 100_000  # bytes; a line for each setting is a fraction, and more would take seconds to read


def texts(path: Union[str, Path]) -> Dict[str, Optional[str]]:
    """Return values by key as they stand in the file; None for a value that is empty or `null`.

    Raises:
        UsageError: the file cannot be read, or is no such file.
    """
    found = _mapping(Path(path), yaml.BaseLoader)  # which takes every value as text
    return {key: None if value in ("", "~", "null") else value for key, value in found.items()}


def values(path: Union[str, Path]) -> Dict[str, Any]:
    """Return values by key as YAML takes them, for files that this program wrote; raises as `texts`."""
    return _mapping(Path(path), yaml.SafeLoader)


def _mapping(path: Path, loader: Any) -> Dict[str, Any]:
    try:
        content = path.read_bytes()
        if len(content) > _LARGEST:
            raise ValueError(f"{len(content)} bytes are too many for settings; is it another file?")
        found = yaml.load(content.decode("utf-8"), Loader=loader) or {}
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}.") from None
    except (
        yaml.YAMLError,
        ValueError,
        OverflowError,
        RecursionError,
    ) as error:  # ValueError: not UTF-8 either
        raise UsageError(f"{path} is not valid YAML: {shortened(str(error), 200)}") from None
    if not isinstance(found, dict):
        raise UsageError(f"{path} must hold `key: value` lines, one for each setting.")
    for key, value in found.items():
        if not isinstance(key, str) or isinstance(value, (dict, list)):
            raise UsageError(f"{path}: {key} must be a single value.")
    return found
