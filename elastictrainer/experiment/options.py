"""Settings read from the command line and from a YAML file."""

import argparse
import dataclasses
import difflib
import math
import typing
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Type, TypeVar, Union

from elastictrainer.errors import UsageError, shortened, unknown
from elastictrainer.experiment.settings import CommonSettings, ProfileSettings, TrainSettings, option_of
from elastictrainer.runs.files import yaml_texts

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
        The settings; and all that the parser read, for the options that are no settings.

    Raises:
        UsageError: an unknown option or key (the message names the nearest valid one), a file that cannot be
            read, or a value of a wrong type or out of range.
    """
    parser.add_argument(
        "--config", metavar="FILE", help="YAML file with any of these settings; the command line wins"
    )
    _add_options(parser, settings)
    parsed, rest = parser.parse_known_args(arguments)
    if rest:
        known = [option for action in parser._actions for option in action.option_strings]
        near = difflib.get_close_matches(rest[0].split("=")[0], known, n=1, cutoff=0.5)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise UsageError(f"unknown argument {rest[0]!r}.{hint} See --help.")
    fields = _fields(settings)
    values = _read_yaml(parsed.config, fields) if parsed.config else {}
    for name, value in vars(parsed).items():
        if name in fields:
            values[name] = ",".join(value) if isinstance(value, list) else value
    return _converted(settings, values), parsed


def _add_options(parser: argparse.ArgumentParser, settings: Type[Settings]) -> None:
    """Add an option for each setting, under the heading of its group, and its other names without help."""
    types, fields = typing.get_type_hints(settings), _fields(settings)
    used = {field.metadata["group"] for field in fields.values()}
    groups = {name: parser.add_argument_group(name) for name in _GROUPS if name in used}
    group = ""
    for name, field in fields.items():
        kind, metadata = _plain(types[name]), field.metadata
        group = metadata["group"] or group
        extra: Dict[str, Any] = {"dest": name, "default": argparse.SUPPRESS}
        if kind is bool:
            extra["action"] = argparse.BooleanOptionalAction  # "no": for what a file may have set
        else:
            extra["metavar"] = metadata["metavar"] or {int: "N", float: "X"}.get(kind, "NAME")
            extra["action"] = "append" if metadata["repeated"] else "store"
        default = ""
        if field.default is not None and kind is not bool:
            default = f" (default: {field.default:{'g' if kind is float else ''}})"
        groups[group].add_argument(option_of(name), help=metadata["help"] + default, **extra)
        published = [alias for alias, target in ALIASES.items() if target == name]
        names = [name, *published, *filter(None, [metadata["alias"]])]
        others = {*map(option_of, names), *(f"--{alias}" for alias in names)} - {option_of(name)}
        if others:
            parser.add_argument(*sorted(others), help=argparse.SUPPRESS, **extra)


def load(settings: Type[Settings], path: Union[str, Path]) -> Settings:
    """Load settings from a YAML file alone; raises as `parse`."""
    return _converted(settings, _read_yaml(str(path), _fields(settings)))


def given(settings: Type[Settings], parsed: argparse.Namespace) -> List[str]:
    """Return which settings, and --config, the command line set, by what `parse` returned: "--batch-size"."""
    names = [name for name in _fields(settings) if hasattr(parsed, name)]
    return [option_of(name) for name in names] + (["--config"] if parsed.config else [])


def _fields(settings: Type[Settings]) -> Dict[str, Any]:
    return {field.name: field for field in dataclasses.fields(settings)}


def _converted(settings: Type[Settings], values: Dict[str, Any]) -> Settings:
    types, fields = typing.get_type_hints(settings), _fields(settings)
    if values.get("scheme") in SCHEME_ALIASES:
        values = {**values, "scheme": SCHEME_ALIASES[values["scheme"]]}
    return settings(
        **{name: _convert(name, value, types[name], fields[name]) for name, value in values.items()}
    )


def _plain(kind: Any) -> Any:
    """Return the type without `Optional`: T for `Optional[T]` and for T."""
    return next((a for a in typing.get_args(kind) if a is not type(None)), kind)


def _read_yaml(path: str, fields: Dict[str, Any]) -> Dict[str, Any]:
    of_any_command = {**_fields(ProfileSettings), **_fields(TrainSettings)}
    values: Dict[str, Any] = {}
    for key, value in yaml_texts(path).items():
        name = ALIASES.get(key.replace("-", "_"), key.replace("-", "_"))
        if name not in of_any_command:  # one file serves both commands
            raise UsageError(f"{path}: {unknown('key', key, fields)}")
        if name in values:
            raise UsageError(f"{path}: {key!r} is {name!r} again; leave one of them out.")
        values[name] = value
    return {name: value for name, value in values.items() if name in fields}


def _convert(name: str, value: Any, kind: Any, field: Any) -> Any:
    """Convert a text, or a boolean of the command line, to the type of a setting."""
    option, plain = option_of(name), _plain(kind)
    if value is None:
        if plain is kind:
            raise UsageError(f"{option} has no value.")
        return None
    if plain is str or isinstance(value, bool):
        return value
    if plain is bool:
        if value.lower() not in _BOOLEANS:
            raise UsageError(f"{option} must be true or false, not {value!r}.")
        return _BOOLEANS[value.lower()]
    try:
        number = plain(value)
    except ValueError:
        what = "a whole number" if plain is int else "a number"
        raise UsageError(f"{option} must be {what}, not {shortened(value, 40)!r}.") from None
    low, high = field.metadata["low"], field.metadata["high"]
    below, above = low is not None and number < low, high is not None and number > high
    if below or above or (plain is float and not math.isfinite(number)):
        allowed = f"{low} to {high}" if high is not None and low is not None else f"at least {low}"
        raise UsageError(f"{option} {shortened(value, 40)} is out of range; allowed: {allowed}.")
    return number
