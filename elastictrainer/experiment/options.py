"""What is asked for, before TensorFlow is loaded: settings of command line, file and run, all checked."""

import argparse
import dataclasses
import difflib
import math
import re
import sys
import tempfile
import typing
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Sequence, Type, TypeVar, Union

from elastictrainer.errors import UsageError, shortened, unknown
from elastictrainer.experiment.settings import (
    CommonSettings,
    Option,
    ProfileSettings,
    TrainSettings,
    flag_of,
    options_of,
)
from elastictrainer.registry import MODEL
from elastictrainer.runs import environment
from elastictrainer.runs.files import yaml_texts
from elastictrainer.runs.log import LOG
from elastictrainer.runs.run_folder import RunFolder
from elastictrainer.selection import schemes

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
        The settings; and all that the parser read, for the options that are no settings. Its `typed` are the
        settings, and --config, that the command line set: "--batch-size".

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
        options = [*re.findall(r"--[a-z-]+", parser.format_help()), *map(flag_of, fields)]
        raise _unknown(rest[0].split("=")[0], options)
    values = _read_yaml(parsed.config, fields) if parsed.config else {}
    for name, value in vars(parsed).items():
        if name in fields:
            values[name] = ",".join(value) if isinstance(value, list) else value
    parsed.typed = [flag_of(name) for name in fields if hasattr(parsed, name)]
    parsed.typed += ["--config"] if parsed.config else []
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
        groups[group].add_argument(flag_of(name), **extra)


def load(settings: Type[Settings], path: Union[str, Path]) -> Settings:
    """Load settings from a YAML file alone; raises as `parse`."""
    return _converted(settings, _read_yaml(str(path), options_of(settings)))


def _plain(kind: Any) -> Any:
    """Return the type without `Optional`: T for `Optional[T]` and for T."""
    return next((a for a in typing.get_args(kind) if a is not type(None)), kind)


def _read_yaml(path: str, fields: Mapping[str, object]) -> Dict[str, Union[str, bool, None]]:
    of_any_command = {**options_of(ProfileSettings), **options_of(TrainSettings)}
    values: Dict[str, Union[str, bool, None]] = {}
    for key, value in yaml_texts(path).items():
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
    option, plain = flag_of(name), _plain(kind)
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


def check(settings: CommonSettings) -> None:
    """Raise UsageError for a setting that names something that does not exist, or excludes another one."""
    without_data = isinstance(settings, ProfileSettings) and settings.classes  # it needs no image
    for name, option in options_of(settings).items():
        value = getattr(settings, name)
        if value is not None and not (without_data and name == "dataset"):
            option.check_value(value)
    if settings.precision == "bfloat16" and settings.model.endswith(".keras"):
        raise UsageError(
            f"--precision bfloat16: {settings.model} says itself what each layer computes in. Leave it out, "
            "or make the model by a function (--model package.module:function)."
        )
    if isinstance(settings, TrainSettings):
        _check_together(settings)


def _check_together(settings: TrainSettings) -> None:
    if settings.time and settings.deterministic:
        raise UsageError(
            "--time ends a run by the clock, --deterministic by its steps: leave one of them out."
        )
    if settings.memory and settings.deterministic:
        raise UsageError(
            "--memory selects by what is resident, which differs from run to run; --deterministic wants the "
            "same selections: leave one of them out."
        )
    if settings.memory and schemes.selects(settings.scheme) is False:
        raise UsageError(
            f"--memory {settings.memory} selects what fits, and {settings.scheme} selects nothing: leave it "
            "out, or take --scheme elastic."
        )
    if settings.scheme == "head-alone" and settings.head_init != "solve":
        raise UsageError(
            f"--scheme head-alone solves the head, and --head-init {settings.head_init} leaves it: leave one "
            "of them out."
        )
    if settings.optimizer == "adam" and settings.weight_decay not in (0, TrainSettings.weight_decay):
        raise UsageError(
            f"adam has no --weight-decay ({settings.weight_decay:g}): leave it out, or take --optimizer "
            "adamw."
        )


def require_writable(folder: Path, culprit: str) -> None:
    """Raise UsageError, naming the `culprit`, if no file can be made in a folder, existing or not."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"{culprit}: no file can be made in {folder} ({why}). Name another.") from None


_OF_BUILT_IN_MODELS = ("weights", "head_init", "augment", "rotation", "flip")
_OF_ANY = {"head_init": ("solve", "keep")}  # values that any model has a use for


def refuse_inapplicable(settings: CommonSettings, typed: Sequence[str]) -> None:
    """Refuse settings that only a built-in model uses, where the model is not one.

    A settings file may have been written for another model than the one that the command line names: what it
    says of that model is left out, and a note says so. At its default a setting asks for nothing.

    Args:
        settings: of a new run or profile.
        typed: the options that the command line set, see `parse`.
    """
    MODEL.check(settings.model)  # a mistyped name is none of a model of one's own
    if settings.model in MODEL.names:
        return
    special = [name for name in _OF_BUILT_IN_MODELS if getattr(settings, name) not in _OF_ANY.get(name, ())]
    changed = [name for name in special if getattr(settings, name) != getattr(CommonSettings, name)]
    asked = [option for option in map(flag_of, special) if option in typed]
    of_another = "--config" in typed and "--model" in typed
    refused = asked or ([] if of_another else [flag_of(name) for name in changed])
    if refused:
        raise UsageError(
            f"{', '.join(refused)}: not for {settings.model}, a model of your own: its weights, head and "
            f"augmentation are as you made it. Leave {'it' if len(refused) == 1 else 'them'} out."
        )
    if changed:
        LOG.info(f"note: {', '.join(changed)} of the settings file: not for {settings.model}, and left out")


def load_trusted(run: RunFolder, trust: bool) -> TrainSettings:
    """Load a run folder's settings; UsageError where they name code, and are not this user's nor trusted."""
    settings = load(TrainSettings, run.config_path)
    named = [
        f"{name}: {getattr(settings, name)}" for name in ("scheme", "model") if ":" in getattr(settings, name)
    ]
    named += [f"callback: {settings.callback}"] if settings.callback else []
    named += ["trust_model: true"] if settings.trust_model else []
    if named and not trust and not run.is_own():
        raise UsageError(
            f"{run.config_path} names code to run ({', '.join(named)}), and was not written by you on this "
            "machine, or was changed since. If you trust where it is from: --trust-run."
        )
    return settings


# The saved model contains the layers that these settings describe.
_SAVED_WITH_THE_MODEL = ("model", "image_size", "augment", "rotation", "flip", "precision")
_REFUSED = (*_SAVED_WITH_THE_MODEL, "weights", "head_init")


def inherit(settings: TrainSettings, typed: Sequence[str], trust: bool = False) -> TrainSettings:
    """Return `settings`, with those that describe the model replaced by the earlier run's.

    UsageError where there is no finished run at `init_from`, the options `typed` on the command line have one
    that the earlier run decides, or as from `load_trusted`.
    """
    run = RunFolder(settings.init_from or "")
    if not run.model_path.exists() or not run.config_path.exists():
        raise UsageError(
            f"--init-from {settings.init_from}: there is no finished run "
            f"(no {run.model_path.name} and {run.config_path.name})."
        )
    refused = [option for option in map(flag_of, _REFUSED) if option in typed]
    if refused:
        raise UsageError(
            f"--init-from takes model and weights from {settings.init_from}; leave out {', '.join(refused)}."
        )
    earlier = load_trusted(run, trust)
    if earlier.precision == "bfloat16" and not environment.has_bfloat16():
        earlier = dataclasses.replace(earlier, precision="float32")
        LOG.info(f"note: {run.path} computed in bfloat16, which this device has not: float32 from here on")
    head_init = "keep" if earlier.head_init == "keep" else settings.head_init
    saved = {name: getattr(earlier, name) for name in _SAVED_WITH_THE_MODEL}
    return dataclasses.replace(settings, head_init=head_init, **saved)
