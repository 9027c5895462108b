"""Settings read from the command line and from a YAML file."""

import argparse
import dataclasses
import difflib
import math
import typing
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Type, TypeVar, Union

from elastictrainer import registry
from elastictrainer.errors import UsageError, shortened
from elastictrainer.experiment.setting import option_of
from elastictrainer.experiment.settings import CommonSettings, ProfileSettings, TrainSettings
from elastictrainer.runs import flat_yaml

_GROUPS = ("model", "data", "speed", "training", "profile", "run", "several devices")  # as --help lists them
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
Settings = TypeVar("Settings", bound=CommonSettings)

# Option names and values of the published code -> the names used here.
ALIASES = {
    "model_name": "model",
    "dataset_name": "dataset",
    "train_type": "scheme",
    "input_size": "image_size",
    "num_epochs": "epochs",
    "num_classes": "classes",
    "run_name": "output",
    "time_budget": "rho",
}
SCHEME_ALIASES = {
    "elastic_training": "elastic",
    "elastic_training_weight_magnitude": "elastic-weight-magnitude",
    "elastic_training_grad_magnitude": "elastic-grad-magnitude",
    "full_training": "full",
    "traditional_tl_training": "traditional-tl",
    "bn_plus_bias_training": "bn-bias",
    "bn+bias_training": "bn-bias",
}


def parse(
    settings: Type[Settings], arguments: Optional[Sequence[str]], parser: argparse.ArgumentParser
) -> typing.Tuple[Settings, argparse.Namespace]:
    """Read `--config FILE` and the command line; where both set a value, the command line's is used.

    Args:
        settings: a dataclass whose fields are made with `setting`.
        arguments: the command line; None: `sys.argv[1:]`.
        parser: gets one option for each field, in addition to the options that it has.

    Returns:
        The settings; and everything that the parser read, for the options that are no settings.

    Raises:
        UsageError: an unknown option or key (the message names the nearest valid one), a file that cannot be
            read, or a value of a wrong type or out of range.
    """
    types = typing.get_type_hints(settings)
    fields = {field.name: field for field in dataclasses.fields(settings)}
    parser.add_argument(
        "--config", metavar="FILE", help="YAML file with any of these settings; the command line wins"
    )
    used = {field.metadata["group"] for field in fields.values()}
    groups = {name: parser.add_argument_group(name) for name in _GROUPS if name in used}
    group = ""
    for name, field in fields.items():
        kind, metadata = _plain(types[name]), field.metadata
        group = metadata["group"] or group
        default = "" if field.default is None or kind is bool else f" (default: {_text(field.default)})"
        extra: Dict[str, Any] = {"type": str, "metavar": metadata["metavar"] or _metavar(kind, metadata)}
        if kind is bool:
            extra = {"action": "store_true" if field.default is False else argparse.BooleanOptionalAction}
        if metadata["repeated"]:
            extra.update(action="append")
        extra.update(dest=name, default=argparse.SUPPRESS)
        option = option_of(name)
        groups[group].add_argument(option, help=metadata["help"] + default, **extra)
        if field.default is False:  # for what a file may have set
            negative: Dict[str, Any] = {"action": "store_false", "dest": name, "default": argparse.SUPPRESS}
            parser.add_argument(f"--no-{name.replace('_', '-')}", help=argparse.SUPPRESS, **negative)
        others = [f"--{name}"] if "_" in name else []
        others += [f"--{alias}" for alias, target in ALIASES.items() if target == name]
        others += ["--time-budget"] if name == "rho" else []
        if others:
            parser.add_argument(*others, help=argparse.SUPPRESS, **extra)
    parsed, rest = parser.parse_known_args(arguments)
    if rest:
        known = [option for action in parser._actions for option in action.option_strings]
        raise UsageError(f"unknown argument {rest[0]!r}.{_nearest(rest[0].split('=')[0], known)} See --help.")
    values = _read_yaml(parsed.config, fields) if parsed.config else {}
    for name, value in vars(parsed).items():
        if name in fields:
            values[name] = ",".join(value) if isinstance(value, list) else value
    return _converted(settings, values), parsed


def load(settings: Type[Settings], path: Union[str, Path]) -> Settings:
    """Load settings from a YAML file alone.

    Raises:
        UsageError: as `parse`.
    """
    fields = {field.name: field for field in dataclasses.fields(settings)}
    return _converted(settings, _read_yaml(str(path), fields))


def given(settings: Type[Settings], parsed: argparse.Namespace) -> List[str]:
    """Return the options that the command line set, as they are typed ("--batch-size"): settings and
    --config.

    Args:
        settings: the dataclass given to `parse`.
        parsed: the other options that `parse` returned.
    """
    names = [field.name for field in dataclasses.fields(settings) if hasattr(parsed, field.name)]
    return [option_of(name) for name in names] + (["--config"] if parsed.config else [])


def _converted(settings: Type[Settings], values: Dict[str, Any]) -> Settings:
    types = typing.get_type_hints(settings)
    metadata = {field.name: field.metadata for field in dataclasses.fields(settings)}
    converted = {name: _convert(name, value, types[name], metadata[name]) for name, value in values.items()}
    if "scheme" in converted:
        converted["scheme"] = SCHEME_ALIASES.get(converted["scheme"], converted["scheme"])
    return settings(**converted)


def _plain(kind: Any) -> Any:
    """Return the type without `Optional`: T for `Optional[T]` and for T."""
    return next((a for a in typing.get_args(kind) if a is not type(None)), kind)


def _metavar(kind: Any, metadata: Any) -> str:
    """Return the placeholder for a value in `--help`: the valid names where there are no other values."""
    choice = getattr(metadata["check_name"], "__self__", None)
    if isinstance(choice, registry.Choice) and not choice.open:
        return "{" + ",".join(choice.names) + "}"
    return {int: "N", float: "X"}.get(kind, "NAME")


def _text(default: Any) -> str:
    return f"{default:g}" if isinstance(default, float) else str(default)


def _nearest(value: str, valid: List[str]) -> str:
    near = difflib.get_close_matches(value, valid, n=1, cutoff=0.5)
    return f" Did you mean {near[0]!r}?" if near else ""


def _read_yaml(path: str, fields: Dict[str, Any]) -> Dict[str, Any]:
    values: Dict[str, Any] = {}
    for key, value in flat_yaml.texts(path).items():
        name = ALIASES.get(key.replace("-", "_"), key.replace("-", "_"))
        if name not in fields and name in _other_settings():
            continue  # a setting of the other command: one file serves both
        if name not in fields:
            raise UsageError(
                f"{path}: unknown key {key!r}.{_nearest(name, list(fields))} Valid: {', '.join(fields)}."
            )
        if name in values:
            raise UsageError(f"{path}: {key!r} is {name!r} again; leave one of them out.")
        values[name] = value
    return values


def _other_settings() -> List[str]:
    return [
        field.name for settings in (ProfileSettings, TrainSettings) for field in dataclasses.fields(settings)
    ]


def _convert(name: str, value: Any, kind: Any, metadata: Any) -> Any:
    option = option_of(name)
    plain = _plain(kind)
    if value is None and plain is not kind:
        return None
    if value is None:
        raise UsageError(f"{option} has no value.")
    if plain is bool:
        if not isinstance(value, bool) and value.lower() not in _BOOLEANS:
            raise UsageError(f"{option} must be true or false, not {value!r}.")
        return value if isinstance(value, bool) else _BOOLEANS[value.lower()]
    if plain is str:
        return value
    try:
        number = plain(value)
    except ValueError:
        what = {int: "a whole number", float: "a number"}[plain]
        raise UsageError(f"{option} must be {what}, not {shortened(value, 40)!r}.") from None
    low, high = metadata["low"], metadata["high"]
    if (
        (plain is float and not math.isfinite(number))
        or not (low is None or number >= low)
        or not (high is None or number <= high)
    ):
        allowed = f"{low} to {high}" if high is not None and low is not None else f"at least {low}"
        raise UsageError(f"{option} {shortened(value, 40)} is out of range; allowed: {allowed}.")
    return number
