"""What a profile's JSON must look like, as a JSON Schema beside the package's other assets."""

import json
from functools import lru_cache
from importlib import resources
from typing import Any

from elastictrainer.errors import UsageError


def read_json(text: str) -> Any:
    """The value of a JSON text; ValueError also for NaN and infinity, which Python would let pass."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON number")

    return json.loads(text, parse_constant=refuse)


def check(value: Any) -> None:
    """UsageError, naming the place, where `value` is no profile by the schema."""
    import jsonschema

    error = jsonschema.exceptions.best_match(_validator().iter_errors(value))
    if error is not None:
        place = "/".join(str(step) for step in error.absolute_path)
        said = error.message if len(error.message) < 200 else error.message[:200] + "..."
        raise UsageError(f"{place + ': ' if place else ''}{said}.")


@lru_cache(maxsize=1)
def _validator() -> Any:
    import jsonschema

    text = resources.files("elastictrainer").joinpath("assets/profile.schema.json").read_text(encoding="utf-8")
    return jsonschema.Draft202012Validator(json.loads(text))
