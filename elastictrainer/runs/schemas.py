"""The contents that the files of a run folder must have, checked when they are read."""

import json
from pathlib import Path
from typing import Any, Dict, Union

import jsonschema

from elastictrainer.errors import UsageError, shortened

_NULLABLE = {"type": ["number", "null"], "minimum": -1e300, "maximum": 1e300}  # JSON's 1e999 is infinite
_NUMBER = {**_NULLABLE, "type": "number"}
_TEXT = {"type": "string", "maxLength": 4096}


def _schema(required: Dict[str, Any], optional: Dict[str, Any]) -> Any:
    return jsonschema.Draft202012Validator(
        {"type": "object", "required": list(required), "properties": {**required, **optional}}
    )


def _each(keys: str, kind: Any) -> Dict[str, Any]:
    return dict.fromkeys(keys.split(), kind)


_FILES = {
    "config.yaml": _schema(
        {"scheme": _TEXT},
        {
            **_each("model dataset weights optimizer activation_cache", _TEXT),
            **_each("rho epochs interval seed keep batch_size image_size", _NULLABLE),
        },
    ),
    "environment.json": _schema(
        {},
        {
            "class_names": {"type": "array", "items": _TEXT, "uniqueItems": True},
            "versions": {"type": "object"},
            "device": _TEXT,
            "threads": {"type": "object", "properties": {"processors": {"type": "integer"}}},
            "directory": _TEXT,
            "data": {
                "type": "object",
                "required": ["class_names", "train", "test"],
                "properties": _each("train val test", {"type": "object", "required": ["count", "contents"]}),
            },
        },
    ),
    "metrics.jsonl": _schema(
        {"epoch": _NUMBER},
        _each(
            "train_seconds_total test_accuracy test_loss val_accuracy val_loss flops flops_total", _NULLABLE
        ),
    ),
    "selections.jsonl": _schema(
        {},
        {
            "selected": {"type": "array", "items": {"type": "integer", "minimum": 0}},
            "importance": {"type": "array", "items": _NUMBER},
            **_each("epoch step predicted_ratio", _NULLABLE),
        },
    ),
    "summary.json": _schema(
        {
            **_each("train_seconds importance_seconds selection_seconds trace_seconds", _NUMBER),
            **_each("rho_requested rho_predicted rho_achieved", _NULLABLE),
        },
        {
            **_each("accuracy_best accuracy_last", _NULLABLE),  # of a run that was evaluated
            **_each("cached_share cache_bytes cache_write_seconds cache_read_seconds", _NULLABLE),
            **_each("flops_total energy_joules peak_rss_bytes", _NULLABLE),
            **_each("accuracy_old accuracy_new", _NULLABLE),
            **_each("accuracy loss val_accuracy val_loss val_accuracy_last kept_epoch", _NULLABLE),
            "kept_weights": _TEXT,
            "stopped": {**_TEXT, "type": ["string", "null"]},
        },
    ),
}


def loads(text: Union[str, bytes]) -> Any:
    """Parse JSON; ValueError or RecursionError where it is none."""
    return json.loads(text, parse_constant=_no_number)


def parse(path: Path, text: str) -> Any:
    """Parse `text` of a run's file as JSON; UsageError where it is none, or of another kind."""
    try:
        value = loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is damaged ({shortened(str(error), 120)}): {text.strip()[:40]}") from None
    check(path, value)
    return value


def check(path: Path, value: Any) -> None:
    """Raise UsageError if `value` does not belong into a run's file of that name."""
    error = jsonschema.exceptions.best_match(_FILES[path.name].iter_errors(value))
    if error is not None:
        place = "/".join(map(str, error.absolute_path))
        raise UsageError(
            f"{path} is damaged ({place + ': ' if place else ''}{shortened(error.message, 120)})."
        )


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is not JSON")
