"""Settings read from the command line and from a YAML file."""

import argparse
import difflib
import math
import re
import sys
import typing
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Type, TypeVar, Union

from elastictrainer.errors import UsageError, shortened, unknown
from elastictrainer.experiment.settings import (
    CommonSettings,
    Option,
    ProfileSettings,
    TrainSettings,
    option_of,
    options_of,
)
from elastictrainer.runs import flat_yaml

_GROUPS = ("model", "data", "speed", "training", "profile", "run")  # as --help lists them
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_REPLACED = {  # options of earlier versions and of the published code that resemble none of today's
    "--until": "Say how long the command may take: --time 2h.",
    "--strategy": "Many devices train together through Flower: see docs/fleet.md.",
    "--train_type": "The names of schemes are those of --scheme.",
    "--run_name": "The run folder is --output.",
}
Settings = TypeVar("Settings", bound=CommonSettings)


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
    typed = list(sys.argv[1:] if arguments is None else arguments)
    parser.add_argument("--help-all", action="help", help="show every option")
    parser.add_argument(
        "--config", metavar="FILE", help="YAML file with any of these settings; the command line wins"
    )
    _add_options(parser, settings, all_shown="--help-all" in typed)
    parsed, rest = parser.parse_known_args(typed)
    fields = options_of(settings)
    if rest:
        options = [*re.findall(r"--[a-z-]+", parser.format_help()), *map(option_of, fields)]
        raise _unknown(rest[0].split("=")[0], options)
    values = _read_yaml(parsed.config, fields) if parsed.config else {}
    for name, value in vars(parsed).items():
        if name in fields:
            values[name] = ",".join(value) if isinstance(value, list) else value
    return _converted(settings, values), parsed


def _unknown(option: str, options: Sequence[str]) -> UsageError:
    near = difflib.get_close_matches(option, options, n=1, cutoff=0.5)
    hint = _REPLACED.get(option) or (f"Did you mean {near[0]!r}?" if near else "")
    return UsageError(" ".join(filter(None, (f"unknown argument {option!r}.", hint, "See --help-all."))))


def _add_options(parser: argparse.ArgumentParser, settings: Type[Settings], all_shown: bool) -> None:
    """Add an option for each setting, under the heading of its group; the common ones are shown by --help."""
    types, group = typing.get_type_hints(settings), ""
    groups = {name: parser.add_argument_group(name) for name in _GROUPS}
    for name, option in options_of(settings).items():
        kind, default = _plain(types[name]), getattr(settings, name)
        group = option.group or group
        extra: Dict[str, Any] = {"dest": name, "default": argparse.SUPPRESS, "help": argparse.SUPPRESS}
        if kind is bool:
            extra["action"] = argparse.BooleanOptionalAction  # "no": for what a file may have set
        else:
            extra["metavar"] = option.placeholder(kind)
            extra["action"] = "append" if option.repeated else "store"
        if all_shown or option.common:
            short = f"{default:g}" if kind is float and default else default
            extra["help"] = option.help + ("" if default is None or kind is bool else f" (default: {short})")
        groups[group].add_argument(option_of(name), **extra)


def load(settings: Type[Settings], path: Union[str, Path]) -> Settings:
    """Load settings from a YAML file alone; raises as `parse`."""
    return _converted(settings, _read_yaml(str(path), options_of(settings)))


def given(settings: Type[Settings], parsed: argparse.Namespace) -> List[str]:
    """Return which settings, and --config, the command line set, by what `parse` returned: "--batch-size"."""
    names = [name for name in options_of(settings) if hasattr(parsed, name)]
    return [option_of(name) for name in names] + (["--config"] if parsed.config else [])


def _plain(kind: Any) -> Any:
    """Return the type without `Optional`: T for `Optional[T]` and for T."""
    return next((a for a in typing.get_args(kind) if a is not type(None)), kind)


def _read_yaml(path: str, fields: Mapping[str, object]) -> Dict[str, Union[str, bool, None]]:
    of_any_command = {**options_of(ProfileSettings), **options_of(TrainSettings)}
    values: Dict[str, Union[str, bool, None]] = {}
    for key, value in flat_yaml.texts(path).items():
        name = key.replace("-", "_")
        if name not in of_any_command:  # one file serves both commands
            raise UsageError(f"{path}: {unknown('key', key, fields)}")
        if name in values:
            raise UsageError(f"{path}: {key!r} is {name!r} again; leave one of them out.")
        values[name] = value
    return {name: value for name, value in values.items() if name in fields}


def _converted(settings: Type[Settings], values: Mapping[str, Union[str, bool, None]]) -> Settings:
    types, options = typing.get_type_hints(settings), options_of(settings)
    found = {name: _convert(name, value, types[name], options[name]) for name, value in values.items()}
    return settings(**found)


def _convert(name: str, value: Union[str, bool, None], kind: Any, allowed: Option) -> Any:
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
    low, high = allowed.low, allowed.high
    below, above = low is not None and number < low, high is not None and number > high
    if below or above or (plain is float and not math.isfinite(number)):
        limits = f"{low} to {high}" if high is not None and low is not None else f"at least {low}"
        raise UsageError(f"{option} {shortened(value, 40)} is out of range; allowed: {limits}.")
    return number
