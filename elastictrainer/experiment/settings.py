"""The settings of each command: a dataclass, filled from a YAML file and the command line."""

import argparse
import dataclasses
import difflib
import math
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Type, TypeVar, Union

import yaml

from elastictrainer import registry
from elastictrainer.errors import UsageError
from elastictrainer.selection import schemes

Settings = TypeVar("Settings", bound="CommonSettings")

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


def setting(
    default: Any,
    help: str,
    low: Optional[float] = None,
    high: Optional[float] = None,
    bare: Any = None,
    check_name: Optional[Callable[[str], None]] = None,
) -> Any:
    """A dataclass field for one setting.

    Args:
        default: its value if neither the file nor the command line sets it.
        help: one line for `--help`.
        low: smallest value allowed; None: no limit.
        high: largest value allowed; None: no limit.
        bare: the value that the option stands for when it is given without one; None: it needs a value.
        check_name: raises UsageError for a name that does not exist; None: the value is not a name.
    """
    metadata = {"help": help, "low": low, "high": high, "bare": bare, "check_name": check_name}
    return dataclasses.field(default=default, metadata=metadata)


@dataclass
class CommonSettings:
    """Settings that et-profile and et-train share: model, data and optimizer."""

    model: str = setting(
        "resnet50",
        f"{', '.join(registry.MODEL.names)}, a .keras file, or package.module:function",
        check_name=registry.MODEL.check,
    )
    weights: str = setting("imagenet", "imagenet (downloaded once), none, or a weights file")
    head_init: str = setting(
        "zeros",
        "initial head: zeros, or glorot as in the published code",
        check_name=registry.HEAD_INIT.check,
    )
    rotation: Optional[float] = setting(
        None, "largest random rotation, in turns; the model's own if not given (0.2)", 0, 0.5
    )
    flip: Optional[bool] = setting(None, "mirror images at random; the model's own if not given (yes)")
    dataset: str = setting(
        "caltech_birds2011",
        f"{', '.join(registry.DATASET.names)}, or your images: a folder with train/CLASS/IMAGE and "
        "test/CLASS/IMAGE (or CLASS/IMAGE, see --validation-split), a folder that tensorflow-datasets has "
        "prepared, a .csv table with the columns path, label and perhaps split, or .npz arrays",
        check_name=registry.DATASET.check,
    )
    validation_split: Optional[float] = setting(
        None, "share of every class to test on, where the data has no test part", 0.01, 0.9
    )
    data_dir: Optional[str] = setting(
        None, "where tensorflow-datasets keeps its data (~/tensorflow_datasets)"
    )
    classes: Optional[int] = setting(
        None, "number of classes; comes from the data, and must agree with it", 2
    )
    image_size: Optional[int] = setting(
        None, "height and width in pixels; the model's own if not given (224)", 8, 4096
    )
    batch_size: int = setting(4, "images in a training step", 1)
    optimizer: str = setting(
        "sgd", "sgd (decoupled weight decay, cosine schedule) or adam", check_name=registry.OPTIMIZER.check
    )
    learning_rate: float = setting(1e-4, "at the first step", 0)
    weight_decay: float = setting(5e-4, "of sgd, per step, times the learning rate", 0)
    calibration_seconds: float = setting(
        40.0,
        "spent on timing steps when a profile is made, after the trace; less time: a less accurate profile",
        0,
    )
    seed: int = setting(0, "of initial head, data order, augmentation and dropout", 0)


@dataclass
class ProfileSettings(CommonSettings):
    """Settings of et-profile."""

    warmup: int = setting(100, "steps before the first measurement; fewer if they take five seconds", 1)
    steps: int = setting(8, "traced steps; times are medians over them", 1)
    validate: int = setting(0, "measure this many random selections against the prediction", 0)
    output: Optional[str] = setting(None, "where to write the profile (profiles/MODEL_....json)")
    plot: Optional[str] = setting(None, "draw the timings into this file (.png, .pdf, .svg)")


@dataclass
class TrainSettings(CommonSettings):
    """Settings of et-train."""

    init_from: Optional[str] = setting(
        None,
        "start from an earlier run's model, for the same classes or others: classes that it knows keep their "
        "weights",
    )
    scheme: str = setting(
        "elastic",
        "elastic, elastic-weight-magnitude, elastic-grad-magnitude, full, traditional-tl, bn-bias, "
        "prunetrain, or your own: package.module:Class",
        check_name=schemes.check,
    )
    rho: float = setting(0.5, "elastic schemes: training time over that of full training", 0.01, 1)
    interval: int = setting(4, "epochs between two selections; the first one is renewed after half that", 1)
    epochs: int = setting(12, "passes over the training images", 1)
    importance_batches: int = setting(5, "minibatches that a selection is based on", 1)
    solver: str = setting(
        "dp", "dp (a knapsack, milliseconds) or milp (exact, slower)", check_name=registry.SOLVER.check
    )
    reprofile: str = setting(
        "auto",
        "make a new profile during training: auto (where the clock contradicts it by more than a tenth for "
        "a while), always (before every selection as well; --reprofile alone) or never",
        bare="always",
        check_name=registry.REPROFILE.check,
    )
    strategy: str = setting(
        "none",
        "mirrored: a process for each GPU of this machine trains on a share of each minibatch; multi-worker: "
        "you start the processes and name them in TF_CONFIG; none",
        check_name=registry.STRATEGY.check,
    )
    replicas: Optional[int] = setting(None, "mirrored: how many processes; one for each GPU if not given", 2)
    cache: str = setting(
        "none",
        "keep decoded images of a folder or table: none, memory, or disk (in cache/, for later runs too)",
        check_name=registry.CACHE.check,
    )
    checkpoint_minutes: float = setting(
        10.0, "between checkpoints within an epoch; one is also written after every epoch", 0
    )
    meter: Optional[str] = setting(
        None, "log of an external power meter, CSV of Unix time and watts, read at the end of the run"
    )
    profile: Optional[str] = setting(None, "the model's profile; found or made in profiles/ if not given")
    export: Optional[str] = setting(
        None,
        f"write the model for use when done: {', '.join(registry.EXPORT.names)}; or several: tflite,keras",
        check_name=lambda formats: registry.EXPORT.check_each(formats.split(",")),
    )
    output: Optional[str] = setting(None, "the run folder (runs/TIME_MODEL_SCHEME)")
    overwrite: bool = setting(False, "replace a run folder that exists")
    deterministic: bool = setting(
        False,
        "the same seed and profile give the same result, bit for bit; the ops are slower, and measured times "
        "do not correct the budget",
    )


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
    for name, field in fields.items():
        kind = _plain(types[name])
        options = [f"--{name.replace('_', '-')}"] + ([f"--{name}"] if "_" in name else [])
        options += [f"--{alias}" for alias, target in ALIASES.items() if target == name]
        default = "" if field.default is None or kind is bool else f" (default: {field.default})"
        extra: Dict[str, Any] = (
            {"action": argparse.BooleanOptionalAction}
            if kind is bool
            else {"type": str, "metavar": {int: "N", float: "X"}.get(kind, "NAME")}
        )
        if field.metadata["bare"] is not None:
            extra.update(nargs="?", const=field.metadata["bare"])
        parser.add_argument(
            *options, dest=name, default=argparse.SUPPRESS, help=field.metadata["help"] + default, **extra
        )
    parsed, rest = parser.parse_known_args(arguments)
    if rest:
        known = [option for action in parser._actions for option in action.option_strings]
        raise UsageError(f"unknown argument {rest[0]!r}.{_nearest(rest[0].split('=')[0], known)} See --help.")
    values = _read_yaml(parsed.config, fields) if parsed.config else {}
    values.update({name: value for name, value in vars(parsed).items() if name in fields})
    return _converted(settings, values), parsed


def load(settings: Type[Settings], path: Union[str, Path]) -> Settings:
    """Settings from a YAML file alone.

    Raises:
        UsageError: as `parse`.
    """
    fields = {field.name: field for field in dataclasses.fields(settings)}
    return _converted(settings, _read_yaml(str(path), fields))


def check_names(settings: CommonSettings, but: Sequence[str] = ()) -> None:
    """Refuse a setting whose value is the name of something that does not exist, before anything slow begins.

    Args:
        settings: a command's.
        but: fields that are not checked.

    Raises:
        UsageError: for the first such setting; the message lists the valid names.
    """
    for field in dataclasses.fields(settings):
        value, check_name = getattr(settings, field.name), field.metadata["check_name"]
        if check_name and value and field.name not in but:
            check_name(value)


def given(settings: Type[Settings], parsed: argparse.Namespace) -> List[str]:
    """The options that the command line set, as they are typed ("--batch-size"): settings and --config.

    Args:
        settings: the dataclass given to `parse`.
        parsed: what `parse` returned beside the settings.
    """
    names = [field.name for field in dataclasses.fields(settings) if hasattr(parsed, field.name)]
    return ["--" + name.replace("_", "-") for name in names] + (["--config"] if parsed.config else [])


def _converted(settings: Type[Settings], values: Dict[str, Any]) -> Settings:
    types = typing.get_type_hints(settings)
    metadata = {field.name: field.metadata for field in dataclasses.fields(settings)}
    converted = {name: _convert(name, value, types[name], metadata[name]) for name, value in values.items()}
    if "scheme" in converted:
        converted["scheme"] = SCHEME_ALIASES.get(converted["scheme"], converted["scheme"])
    return settings(**converted)


def _plain(kind: Any) -> Any:
    """The type without `Optional`: T for `Optional[T]` and for T."""
    return next((a for a in typing.get_args(kind) if a is not type(None)), kind)


def _nearest(value: str, valid: List[str]) -> str:
    near = difflib.get_close_matches(value, valid, n=1, cutoff=0.5)
    return f" Did you mean {near[0]!r}?" if near else ""


def _read_yaml(path: str, fields: Dict[str, Any]) -> Dict[str, Any]:
    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read the config file {path}: {error.strerror}.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise UsageError(f"{path} must hold `key: value` lines, one for each setting.")
    values = {}
    for key, value in content.items():
        name = ALIASES.get(str(key).replace("-", "_"), str(key).replace("-", "_"))
        if name not in fields and name in _other_settings():
            continue  # a setting of the other command: one file serves both
        if name not in fields:
            raise UsageError(
                f"{path}: unknown key {key!r}.{_nearest(name, list(fields))} Valid: {', '.join(fields)}."
            )
        values[name] = value
    return values


def _other_settings() -> List[str]:
    return [
        field.name for settings in (ProfileSettings, TrainSettings) for field in dataclasses.fields(settings)
    ]


def _convert(name: str, value: Any, kind: Any, metadata: Any) -> Any:
    option = "--" + name.replace("_", "-")
    plain = _plain(kind)
    if value is None and plain is not kind:
        return None
    if plain is bool:
        if not isinstance(value, bool):
            raise UsageError(f"{option} must be true or false, not {value!r}.")
        return value
    if plain is str:
        if not isinstance(value, (str, int, float)):
            raise UsageError(f"{option} must be text, not a {type(value).__name__}.")
        return str(value)
    try:
        if isinstance(value, bool):
            raise ValueError
        number = plain(value)
        if plain is int and isinstance(value, float) and value != number:
            raise ValueError
    except (TypeError, ValueError):
        what = {int: "a whole number", float: "a number"}[plain]
        raise UsageError(f"{option} must be {what}, not {value!r}.") from None
    low, high = metadata["low"], metadata["high"]
    if (
        not math.isfinite(number)
        or not (low is None or number >= low)
        or not (high is None or number <= high)
    ):
        allowed = f"{low:g} to {high:g}" if high is not None and low is not None else f"at least {low:g}"
        raise UsageError(f"{option} {value} is out of range; allowed: {allowed}.")
    return number
