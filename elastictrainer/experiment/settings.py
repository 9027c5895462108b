"""The settings of each command: a dataclass each, whose fields know their options."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Callable, Optional

from elastictrainer import registry
from elastictrainer.experiment import quantities
from elastictrainer.selection import schemes


def setting(
    default: Any,
    help: str,
    low: Optional[float] = None,
    high: Optional[float] = None,
    check_name: Optional[Callable[[str], Any]] = None,
    metavar: Optional[str] = None,
    group: str = "",
    repeated: bool = False,
) -> Any:
    """Make a dataclass field for one setting.

    Args:
        default: its value if neither the file nor the command line sets it.
        help: one line for `--help`.
        low, high: smallest and largest value allowed; None: no limit.
        check_name: raises UsageError for a name that does not exist; None: the value is not a name.
        metavar: placeholder for the value in `--help`; None: by its type, or the names there are.
        group: the heading in `--help` above this setting and those that follow; empty: as the one before.
        repeated: the option may be given several times; its values are one text then, separated by commas.
    """
    metadata = {
        **{"help": help, "low": low, "high": high, "check_name": check_name},
        **{"metavar": metavar, "group": group, "repeated": repeated},
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
        check_name=registry.MODEL.check,
        group="model",
    )
    trust_model: bool = setting(False, "load a model even if that can run code of its author's")
    weights: str = setting("imagenet", "imagenet (downloaded once), none, or a weights file", metavar="FILE")
    head_init: str = setting(
        "solve",
        "initial head: solve (fitted to the features of the untrained network), zeros, glorot (as in the "
        "published code), or keep (that of a model of your own)",
        check_name=registry.HEAD_INIT.check,
    )
    augment: Optional[str] = setting(
        None,
        "random changes of training images: none, flip, standard, strong or paper; if not given, flip, and "
        "none for the demo network",
        check_name=registry.AUGMENT.check,
    )
    rotation: Optional[float] = setting(
        None, "largest random rotation, in turns, instead of that of --augment", 0, 0.5
    )
    flip: Optional[bool] = setting(None, "mirror images at random, or not, whatever --augment says")
    dataset: str = setting(
        "caltech_birds2011",
        f"{', '.join(registry.DATASET.names)}, or your images: a folder with train/CLASS/IMAGE and "
        "test/CLASS/IMAGE and perhaps val/CLASS/IMAGE (or CLASS/IMAGE, see --test-split), a folder that "
        "tensorflow-datasets has prepared, a .csv table with the columns path, label and perhaps "
        "split and group, or .npz arrays; tfds:NAME, any image classification set of tensorflow-datasets; "
        'hf:NAME, one of Hugging Face\'s hub, or hf:FOLDER, a copy of one (pip install "elastictrainer[hf]")',
        check_name=registry.DATASET.check,
        group="data",
        metavar="DATA",
    )
    validation_split: Optional[float] = setting(
        None,
        "share of every class of the training images to choose the best epoch by; without a test part and "
        "--test-split: to test on",
        0.01,
        0.9,
    )
    test_split: Optional[float] = setting(
        None, "share of every class to test on, where the data has no test part", 0.01, 0.9
    )
    data_dir: Optional[str] = setting(
        None,
        "where tensorflow-datasets (~/tensorflow_datasets) or Hugging Face's datasets keep their data",
        metavar="DIR",
    )
    label_column: Optional[str] = setting(
        None, "column of the labels of hf: data, where there are several of classes", metavar="NAME"
    )
    classes: Optional[int] = setting(
        None, "number of classes; comes from the data, and must agree with it", 2
    )
    image_memory: str = setting(
        "256MB",
        "memory for decoding an image; a larger image raises an error",
        check_name=quantities.bytes_of,
        metavar="SIZE",
    )
    image_size: Optional[int] = setting(
        None, "height and width in pixels; the model's own if not given (224)", 8, 4096
    )
    batch_size: int = setting(4, "images in a training step", 1, group="training")
    optimizer: str = setting(
        "sgd",
        "sgd (momentum 0.9, decoupled weight decay), adam, or adamw (with decoupled weight decay)",
        check_name=registry.OPTIMIZER.check,
    )
    learning_rate: Optional[float] = setting(
        None,
        "the highest; if not given, 2e-4 for sgd with a solved head and a scheme that takes --rho, else 1e-4",
        0,
    )
    weight_decay: float = setting(5e-4, "of sgd and adamw, per step, times the learning rate", 0)
    mixed_precision: bool = setting(False, "compute in bfloat16; faster where the device has such arithmetic")
    calibration_seconds: float = setting(
        40.0, "spent on timing steps when a profile is made; less: a less accurate one", 0, group="profile"
    )
    seed: int = setting(
        0,
        "of initial head, data order, augmentation and dropout",
        0,
        2**32 - 1,  # NumPy takes no more
        group="run",
    )


@dataclass
class ProfileSettings(CommonSettings):
    """Settings of et-profile."""

    warmup: int = setting(
        100, "steps before the first measurement; fewer if they take five seconds", 1, group="profile"
    )
    steps: int = setting(8, "traced steps; times are medians over them", 1)
    validate: int = setting(0, "measure this many random selections against the prediction", 0)
    output: Optional[str] = setting(
        None, "where to write the profile (profiles/MODEL_....json)", metavar="FILE"
    )


@dataclass
class TrainSettings(CommonSettings):
    """Settings of et-train."""

    init_from: Optional[str] = setting(
        None,
        "start from an earlier run's model; its head is kept for the same classes, and solved for others",
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
        check_name=schemes.check_name,
        group="speed",
    )
    rho: float = setting(0.5, "elastic schemes: training time over that of full training", 0.01, 1)
    time: Optional[str] = setting(
        None,
        "what the whole command may take (90s, 10m, 1.5h), instead of --rho and --epochs",
        check_name=quantities.seconds_of,
        metavar="TIME",
    )
    memory: Optional[str] = setting(
        None,
        "elastic schemes: memory that the whole process may take; auto: three quarters of what is free",
        check_name=quantities.limit_of,
        metavar="SIZE",
    )
    interval: Optional[int] = setting(
        None, "epochs between two selections; if not given, as the time allows, and 4 with --reuse off", 1
    )
    epochs: int = setting(
        12,
        "passes over the training images; with --rho, those of the full training it refers to",
        1,
        group="training",
    )
    validation_freq: Optional[int] = setting(
        None,
        "evaluate after so many epochs, and at the end; if not given, after each, or as often as a tenth of "
        "the time allows; with --time, the solved head and the end alone",
        1,
    )
    early_stopping: Optional[int] = setting(
        None, "end after so many epochs without a better validation accuracy; needs a validation part", 1
    )
    schedule: Optional[str] = setting(
        None,
        "of the learning rate: cosine (to zero) or constant; if not given, constant for adam, else cosine",
        check_name=registry.SCHEDULE.check,
    )
    warmup: Optional[float] = setting(
        None,
        "share of the run in which the learning rate rises; if not given, 0.1 with a solved head, else 0",
        0,
        0.9,
    )
    label_smoothing: float = setting(0.0, "share of each label that is spread over all classes", 0, 0.9)
    class_weights: str = setting(
        "none",
        "balanced: rare classes count more; none: all images count alike",
        check_name=registry.CLASS_WEIGHTS.check,
    )
    importance_batches: int = setting(5, "minibatches that a selection is based on", 1, group="speed")
    reuse: str = setting(
        "auto",
        "auto: activations of frozen layers are computed once an interval and cached; off: in every step",
        check_name=registry.REUSE.check,
    )
    reuse_dtype: str = setting(
        "float16",
        "cached activations are stored as float16 or float32",
        check_name=registry.REUSE_DTYPE.check,
    )
    reuse_memory: Optional[str] = setting(
        None,
        "a larger cache goes into a file (2GB, or a quarter of a smaller machine's memory)",
        check_name=quantities.bytes_of,
        metavar="SIZE",
    )
    reuse_dir: Optional[str] = setting(
        None, "where that file is, while training lasts (the run folder)", metavar="DIR"
    )
    strategy: str = setting(
        "none",
        "multi-worker: several processes, which you start, share every minibatch (TF_CONFIG names them)",
        check_name=registry.STRATEGY.check,
        group="several devices",
    )
    cache: str = setting(
        "none",
        "keep decoded images of a folder or table: none or memory",
        check_name=registry.CACHE.check,
        group="data",
    )
    skip_damaged: bool = setting(
        False, "decode every image file before training, and leave out those that cannot be read"
    )
    checkpoint_minutes: float = setting(10.0, "between checkpoints within an epoch", 0, group="run")
    meter: Optional[str] = setting(
        None, "log of an external power meter, CSV of Unix time and watts", metavar="FILE"
    )
    profile: Optional[str] = setting(
        None, "the model's profile; found or made in profiles/ if not given", metavar="FILE"
    )
    export: Optional[str] = setting(
        None,
        f"write the model for use when done: {', '.join(registry.EXPORT.names)}; may be repeated",
        check_name=lambda formats: registry.EXPORT.check_each(formats.split(",")),
        metavar="FORMAT",
        repeated=True,
    )
    callback: Optional[str] = setting(
        None,
        "a Keras callback of yours, or a function that returns one; may be repeated",
        check_name=lambda places: registry.check_places("--callback", places.split(",")),
        metavar="MODULE:NAME",
        repeated=True,
    )
    output: Optional[str] = setting(None, "the run folder (runs/TIME_MODEL_SCHEME)", metavar="DIR")
    overwrite: bool = setting(False, "replace a run folder that exists")
    deterministic: bool = setting(
        False,
        "the same seed and profile give the same result, bit for bit; --epochs, not the time, ends the run",
    )
