"""What a user names as `package.module:attribute` on the command line."""

import importlib
from typing import Any

from elastictrainer.errors import UsageError


def named(option: str, place: str) -> Any:
    """The attribute at `place`, "package.module:attribute"; UsageError, naming `option`, where there is none."""
    module_name, _, attribute = place.partition(":")
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except (ImportError, ValueError) as error:
        raise UsageError(f"cannot import {module_name} of {option} {place}: {error}. Set PYTHONPATH?") from None
    except AttributeError:
        raise UsageError(f"{module_name} has no {attribute!r} ({option} {place}).") from None
