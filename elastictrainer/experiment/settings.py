"""The settings of each command: dataclasses whose fields know their options."""

import dataclasses
import re
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional

from elastictrainer import registry
from elastictrainer.errors import UsageError
from elastictrainer.selection import schemes
from elastictrainer.steps.rates import RateSchedule

_LARGEST_SEED = 2**32 - 1  # NumPy takes no more
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_BYTES = {"": 1.0, "b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9}


def _amount(text: str, units: Dict[str, float], zero: bool = False) -> Optional[float]:
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text.lower())
    if not found or found[2] not in units or not (zero or float(found[1])):
        return None
    return float(found[1]) * units[found[2]]


def parse_seconds(text: str) -> float:
    """Return the seconds that `text` means, such as "90s" or "1.5h"; UsageError where it means none."""
    seconds = _amount(text, _SECONDS)
    if seconds is None:
        raise UsageError(f"{text!r} is no time. Valid: a number with s, m or h, such as 90s, 10m or 1.5h.")
    return seconds


def parse_bytes(text: str, or_else: str = "") -> int:
    """Return the bytes that `text` means, such as "2GB", "500 MB" or "0"; UsageError where it means none.

    `or_else` is what else would have been valid, for the message.
    """
    size = _amount(text, _BYTES, zero=True)
    if size is None:
        raise UsageError(f"{text!r} is no size. Valid: {or_else}a number with kB, MB or GB, such as 500MB.")
    return int(size)


class Option(NamedTuple):
    """What the command line and --help know of a setting.

    Attributes:
        help: one line for `--help`; names alone, where there are no others, are its placeholder there.
        low, high: smallest and largest value allowed; None: no limit.
        names: the valid names; None: the value is no name.
        check: raises UsageError for a wrong value; None: `names` does, or there is none.
        metavar: placeholder for the value in `--help`; None: the names, or by the type.
        group: the heading in `--help` above this setting and those that follow; empty: as the one before.
        repeated: the option may be given several times; its values are one text then, separated by commas.
        common: whether --help shows it; --help-all shows all.
    """

    help: str
    low: Optional[float] = None
    high: Optional[float] = None
    names: Optional[registry.Choice] = None
    check: Optional[Callable[[str], object]] = None
    metavar: Optional[str] = None
    group: str = ""
    repeated: bool = False
    common: bool = False

    def check_value(self, value: str) -> None:
        """Raise UsageError for a value that names nothing."""
        check = self.check or (self.names and self.names.check)
        if check:
            check(value)

    def placeholder(self, kind: type) -> str:
        """Return what stands for a value of a type in --help."""
        if self.metavar is None and self.names is not None and self.names.others is None:
            return f"{{{','.join(self.names.names)}}}"
        return self.metavar or {int: "N", float: "X"}.get(kind, "NAME")


def setting(default: Any, *about: Any, **more: Any) -> Any:
    """Make a dataclass field with its default and an `Option` of the other arguments."""
    return dataclasses.field(default=default, metadata={"option": Option(*about, **more)})


def options_of(settings: Any) -> Dict[str, Option]:
    """Return the options of a class of settings, or of settings, by the name of the setting."""
    return {field.name: field.metadata["option"] for field in dataclasses.fields(settings)}


def flag_of(name: str) -> str:
    """Return the option of a setting, as it is typed: "--batch-size"."""
    return f"--{name.replace('_', '-')}"


@dataclass
class CommonSettings:
    """Settings that et-profile and et-train share: model, data and optimizer."""

    model: str = setting(
        "mobilenetv2",
        f"{registry.MODEL.listed}, a .keras file, or package.module:function",
        names=registry.MODEL,
        group="model",
        common=True,
    )
    trust_model: bool = setting(False, "load a model even if that can run its author's code")
    weights: str = setting("imagenet", "imagenet (downloaded once), none, or a weights file", metavar="FILE")
    head_init: str = setting(
        "solve",
        "initial head: solve fits it to features, glorot is the published code's, keep is for your own model",
        names=registry.HEAD_INIT,
    )
    augment: Optional[str] = setting(
        None,
        "random changes of training images; if not given, flip, for the demo network none",
        names=registry.AUGMENT,
    )
    rotation: Optional[float] = setting(
        None, "largest random rotation, in turns; replaces that of --augment", 0, 0.5
    )
    flip: Optional[bool] = setting(None, "mirror images at random, or not; replaces that of --augment")
    dataset: str = setting(
        "caltech_birds2011",
        f"{', '.join(registry.DATASET.names)}, or your images: a folder with train/CLASS/IMAGE and "
        "test/CLASS/IMAGE and perhaps val/CLASS/IMAGE (or CLASS/IMAGE, see --test-split), a folder that "
        "tensorflow-datasets has prepared, or a .csv table with the columns path, label and perhaps split; "
        "tfds:NAME, any image classification set of tensorflow-datasets; hf:NAME, one of Hugging Face's hub, "
        "or hf:FOLDER, a copy of one (pip install '.[hf]' in the clone)",
        names=registry.DATASET,
        group="data",
        metavar="DATA",
        common=True,
    )
    validation_split: Optional[float] = setting(
        None,
        "share of training images that choose the best epoch; for data without a test part and without "
        "--test-split, the test part",
        0.01,
        0.9,
    )
    test_split: Optional[float] = setting(
        None, "share of every class for the test, for data without a test part", 0.01, 0.9, common=True
    )
    data_dir: Optional[str] = setting(
        None, "folder in which tensorflow-datasets or Hugging Face's datasets keep their data", metavar="DIR"
    )
    label_column: Optional[str] = setting(
        None, "column with the classes, for hf: data that has several", metavar="NAME"
    )
    classes: Optional[int] = setting(None, "number of classes, which must be that of the data", 2)
    image_size: Optional[int] = setting(
        None, "height and width in pixels; the model's own if not given", 8, 4096, common=True
    )
    batch_size: int = setting(16, "images in a training step", 1, group="training", common=True)
    optimizer: str = setting(
        "adamw", "sgd has momentum 0.9; sgd and adamw have decoupled weight decay", names=registry.OPTIMIZER
    )
    learning_rate: Optional[float] = setting(
        None,
        "highest rate; default: 3e-4 (sgd: 2e-4) from a solved head, 1e-4 otherwise",
        0,
    )
    weight_decay: float = setting(5e-4, "decay of weights in a step, times the learning rate (sgd, adamw)", 0)
    precision: str = setting(
        "auto",
        "format that layers compute in; auto: bfloat16 where it is measured to make steps shorter",
        names=registry.PRECISION,
    )
    fold: str = setting(
        "on", "compute batch norms inside the layers before them, where they can be", names=registry.FOLD
    )
    calibration_seconds: float = setting(
        40.0, "seconds for timing steps when a profile is made", 0, group="profile"
    )
    seed: int = setting(0, "seed of all random numbers", 0, _LARGEST_SEED, group="run")


@dataclass
class ProfileSettings(CommonSettings):
    """Settings of et-profile."""

    warmup_steps: int = setting(
        100,
        "training steps before the first measurement, two seconds at most",
        1,
        group="profile",
    )
    steps: int = setting(8, "traced steps; times are medians over them", 1)
    validate: int = setting(0, "measure this many random selections against the prediction", 0)
    profile: Optional[str] = setting(
        None, "file of the profile (profiles/MODEL_....json)", metavar="FILE", common=True
    )


@dataclass
class TrainSettings(CommonSettings):
    """Settings of et-train."""

    init_from: Optional[str] = setting(
        None,
        "start from an earlier run's model; the head is kept for the same classes",
        group="model",
        metavar="RUN",
    )
    keep: Optional[int] = setting(
        None,
        "store so many training images of each class for later runs; with --init-from also keep the earlier "
        "run's classes, and train on so many of its images of each (0: keep the classes alone)",
        0,
        10_000,
        metavar="N",
    )
    scheme: str = setting(
        None,  # see `__post_init__`
        f"{', '.join(schemes.SCHEMES)}, or your own: package.module:Class; default: freeze-below with "
        "--time, else elastic",
        check=schemes.check_name,
        group="speed",
        common=True,
    )
    rho: float = setting(
        0.5, "share of the time of full training (elastic schemes, freeze-below)", 0.01, 1, common=True
    )
    time: Optional[str] = setting(
        None,
        "time of the whole command (90s, 10m, 1.5h), instead of --rho and --epochs",
        check=parse_seconds,
        metavar="TIME",
        common=True,
    )
    memory: Optional[str] = setting(
        None,
        "limit of the whole process (1GB), or auto: three quarters of the free memory (elastic schemes, "
        "freeze-below)",
        check=lambda size: size == "auto" or parse_bytes(size, "auto, or "),
        metavar="SIZE",
        common=True,
    )
    interval: Optional[int] = setting(
        None, "epochs between two selections; if not given, by time, or 4 with --activation-cache off", 1
    )
    epochs: int = setting(
        12,
        "passes over the training images; with --rho, those of full training",
        1,
        group="training",
        common=True,
    )
    validation_freq: Optional[int] = setting(
        None,
        "evaluate after so many epochs, and at the end; if not given, after each, or as often as a tenth of "
        "the time allows; with --time, the solved head and the end alone",
        1,
    )
    early_stopping: Optional[int] = setting(
        None, "end after so many epochs without a better validation accuracy", 1
    )
    schedule: str = setting("cosine", "schedule of the learning rate", names=registry.SCHEDULE)
    warmup: Optional[float] = setting(
        None, "share of the run in which the rate rises; default: 0.1 with a solved head", 0, 0.9
    )
    label_smoothing: float = setting(0.1, "share of each label that is spread over all classes", 0, 0.9)
    class_weights: str = setting("none", "balanced: rare classes count more", names=registry.CLASS_WEIGHTS)
    importance_batches: int = setting(5, "minibatches that a selection is based on", 1, group="speed")
    activation_cache: str = setting(
        "auto",
        "auto: cache the activations of frozen layers; off: compute them in every step",
        names=registry.ACTIVATION_CACHE,
    )
    activation_cache_dtype: str = setting(
        "float16", "number format of cached activations", names=registry.ACTIVATION_CACHE_DTYPE
    )
    activation_cache_memory: Optional[str] = setting(
        None,
        "memory of the cache; a larger one goes into a file (2GB, or a quarter of the machine's memory)",
        check=parse_bytes,
        metavar="SIZE",
    )
    activation_cache_dir: Optional[str] = setting(None, "folder of that file (the run folder)", metavar="DIR")
    cache_images: str = setting(
        "none", "keep decoded images of a folder or table", names=registry.CACHE_IMAGES, group="data"
    )
    skip_damaged: bool = setting(False, "decode every image file first, and leave out unreadable ones")
    checkpoint_minutes: float = setting(10.0, "minutes between checkpoints within an epoch", 0, group="run")
    profile: Optional[str] = setting(None, "the model's profile (found or made in profiles/)", metavar="FILE")
    export: Optional[str] = setting(
        None,
        f"write the model for use when done: {', '.join(registry.EXPORT.names)}; may be repeated",
        check=lambda formats: registry.EXPORT.check_each(formats.split(",")),
        metavar="FORMAT",
        repeated=True,
        common=True,
    )
    callback: Optional[str] = setting(
        None,
        "a Keras callback of yours, or a function that returns one; may be repeated",
        check=lambda places: registry.check_places("--callback", places.split(",")),
        metavar="MODULE:NAME",
        repeated=True,
    )
    output: Optional[str] = setting(
        None, "the run folder (runs/TIME_MODEL_SCHEME)", metavar="DIR", common=True
    )
    overwrite: bool = setting(False, "replace a run folder that exists")
    deterministic: bool = setting(
        False, "make the run repeatable bit for bit, with the same profile; --epochs ends it, not the time"
    )

    def __post_init__(self) -> None:
        # With today's recipe choosing tensors is no better than the simplest rule (docs/results.md).
        self.scheme = self.scheme or ("freeze-below" if self.time else "elastic")

    @property
    def export_formats(self) -> List[str]:
        """Return the formats of `export`."""
        return self.export.split(",") if self.export else []


def asked_rho(config: Mapping[str, Any]) -> Optional[float]:
    """Return the rho that a run was asked for, by its config; None: its time was, or it selects nothing."""
    return config["rho"] if schemes.selects(config["scheme"]) and not config.get("time") else None


PAPER_RATE = 1e-4  # SGD with momentum 0.9, and Adam (MobiSys'23, Sec. 5)
# MobileNetV2 on CUB100 above block_12_add, batch 16, smoothing 0.1, 130 s: AdamW has 87.9 % at 1e-4, 90.0 at
# 3e-4, 90.1 at 6e-4; SGD 85.2 at 2e-4. 12 epochs of full training: 91.3 % at 1e-4, 92.4 at 3e-4.
_RATES = {"sgd": 2e-4, "adam": 3e-4, "adamw": 3e-4}
WARMUP_SHARE = 0.1  # of the run, with a solved head: at the full rate its first steps undo what was solved


def learning_rate(settings: CommonSettings) -> float:
    """Return the highest learning rate of a run or profile."""
    if settings.learning_rate is not None:
        return settings.learning_rate
    return _RATES[settings.optimizer] if settings.head_init == "solve" else PAPER_RATE


def rate_schedule(settings: TrainSettings) -> Optional[RateSchedule]:
    """Return the learning rate as it changes over a run; None where it stays what the optimizer has."""
    warmup = settings.warmup
    if warmup is None:
        warmup = WARMUP_SHARE if settings.head_init == "solve" else 0.0
    if settings.schedule == "constant" and not warmup:
        return None  # a callback may set it
    return RateSchedule(learning_rate(settings), settings.schedule, warmup)
