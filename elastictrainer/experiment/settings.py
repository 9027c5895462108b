"""The settings of each command: a dataclass each, whose fields know their options."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Callable, List, Optional

from elastictrainer import registry
from elastictrainer.experiment import quantities
from elastictrainer.selection import schemes

_LARGEST_SEED = 2**32 - 1  # NumPy takes no more


def setting(
    default: Any,
    help: str,
    low: Optional[float] = None,
    high: Optional[float] = None,
    names: Optional[registry.Choice] = None,
    check: Optional[Callable[[str], Any]] = None,
    metavar: Optional[str] = None,
    group: str = "",
    repeated: bool = False,
    alias: str = "",
) -> Any:
    """Make a dataclass field for one setting.

    Args:
        default: its value if neither the file nor the command line sets it.
        help: one line for `--help`; names alone, where there are no others, are its placeholder there.
        low, high: smallest and largest value allowed; None: no limit.
        names: the valid names; None: the value is no name.
        check: raises UsageError for a wrong value; None: `names` does, or there is none.
        metavar: placeholder for the value in `--help`; None: the names, or by the type.
        group: the heading in `--help` above this setting and those that follow; empty: as the one before.
        repeated: the option may be given several times; its values are one text then, separated by commas.
        alias: another name that the command line takes, and a file does not.
    """
    if names is not None:
        check = names.check
        metavar = metavar or (None if names.others else f"{{{','.join(names.names)}}}")
    metadata = {
        "help": help,
        "low": low,
        "high": high,
        "check": check,
        "metavar": metavar,
        "group": group,
        "repeated": repeated,
        "alias": alias,
    }
    return dataclasses.field(default=default, metadata=metadata)


def option_of(name: str) -> str:
    """Return the option of a setting, as it is typed: "--batch-size"."""
    return f"--{name.replace('_', '-')}"


@dataclass
class CommonSettings:
    """Settings that et-profile and et-train share: model, data and optimizer."""

    model: str = setting(
        "resnet50",
        f"{registry.MODEL.listed}, a .keras file, or package.module:function",
        names=registry.MODEL,
        group="model",
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
        "tfds:NAME, any image classification set of tensorflow-datasets; "
        "hf:NAME, one of Hugging Face's hub, or hf:FOLDER, a copy of one (pip install '.[hf]' in the clone)",
        names=registry.DATASET,
        group="data",
        metavar="DATA",
    )
    validation_split: Optional[float] = setting(
        None,
        "share of training images that choose the best epoch; for data without a test part and without "
        "--test-split, the test part",
        0.01,
        0.9,
    )
    test_split: Optional[float] = setting(
        None, "share of every class for the test, for data without a test part", 0.01, 0.9
    )
    data_dir: Optional[str] = setting(
        None, "folder in which tensorflow-datasets or Hugging Face's datasets keep their data", metavar="DIR"
    )
    label_column: Optional[str] = setting(
        None, "column with the classes, for hf: data that has several", metavar="NAME"
    )
    classes: Optional[int] = setting(None, "number of classes, which must be that of the data", 2)
    image_size: Optional[int] = setting(
        None, "height and width in pixels; the model's own if not given", 8, 4096
    )
    batch_size: int = setting(4, "images in a training step", 1, group="training")
    optimizer: str = setting(
        "sgd", "sgd has momentum 0.9; sgd and adamw have decoupled weight decay", names=registry.OPTIMIZER
    )
    learning_rate: Optional[float] = setting(
        None,
        "highest rate; default: 2e-4 for sgd, a solved head and a scheme with --rho; 1e-4 otherwise and "
        "in short runs",
        0,
    )
    weight_decay: float = setting(5e-4, "decay of weights in a step, times the learning rate (sgd, adamw)", 0)
    mixed_precision: bool = setting(False, "compute in bfloat16, where the device has such arithmetic")
    calibration_seconds: float = setting(
        40.0, "seconds for timing steps when a profile is made", 0, group="profile"
    )
    seed: int = setting(0, "seed of all random numbers", 0, _LARGEST_SEED, group="run")


@dataclass
class ProfileSettings(CommonSettings):
    """Settings of et-profile."""

    warmup_steps: int = setting(
        100,
        "training steps before the first measurement, five seconds at most",
        1,
        alias="warmup",
        group="profile",
    )
    steps: int = setting(8, "traced steps; times are medians over them", 1)
    validate: int = setting(0, "measure this many random selections against the prediction", 0)
    profile: Optional[str] = setting(
        None, "file of the profile (profiles/MODEL_....json)", alias="output", metavar="FILE"
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
        "elastic",
        f"{', '.join(schemes.SCHEMES)}, or your own: package.module:Class",
        check=schemes.check_name,
        group="speed",
    )
    rho: float = setting(0.5, "share of the time of full training (elastic schemes, freeze-below)", 0.01, 1)
    time: Optional[str] = setting(
        None,
        "time of the whole command (90s, 10m, 1.5h), instead of --rho and --epochs",
        check=quantities.parse_seconds,
        metavar="TIME",
    )
    memory: Optional[str] = setting(
        None,
        "limit of the whole process (1GB), or auto: three quarters of the free memory (elastic schemes, "
        "freeze-below)",
        check=quantities.parse_limit,
        metavar="SIZE",
    )
    interval: Optional[int] = setting(
        None, "epochs between two selections; if not given, by time, or 4 with --activation-cache off", 1
    )
    epochs: int = setting(
        12, "passes over the training images; with --rho, those of full training", 1, group="training"
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
    schedule: Optional[str] = setting(
        None,
        "schedule of the learning rate; default: constant for adam, else cosine",
        names=registry.SCHEDULE,
    )
    warmup: Optional[float] = setting(
        None, "share of the run in which the rate rises; default: 0.1 with a solved head", 0, 0.9
    )
    label_smoothing: float = setting(0.0, "share of each label that is spread over all classes", 0, 0.9)
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
        check=quantities.parse_bytes,
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
    )
    callback: Optional[str] = setting(
        None,
        "a Keras callback of yours, or a function that returns one; may be repeated",
        check=lambda places: registry.check_places("--callback", places.split(",")),
        metavar="MODULE:NAME",
        repeated=True,
    )
    output: Optional[str] = setting(None, "the run folder (runs/TIME_MODEL_SCHEME)", metavar="DIR")
    overwrite: bool = setting(False, "replace a run folder that exists")
    deterministic: bool = setting(
        False, "make the run repeatable bit for bit, with the same profile; --epochs ends it, not the time"
    )

    @property
    def export_formats(self) -> List[str]:
        """Return the formats of `export`."""
        return self.export.split(",") if self.export else []
