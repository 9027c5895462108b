"""The settings of each command: a dataclass each."""

from dataclasses import dataclass
from typing import Optional

from elastictrainer import registry
from elastictrainer.experiment import quantities
from elastictrainer.experiment.setting import setting
from elastictrainer.selection import schemes


@dataclass
class CommonSettings:
    """Settings that et-profile and et-train share: model, data and optimizer."""

    model: str = setting(
        "resnet50",
        f"{registry.MODEL.listed}, a .keras file, or package.module:function",
        check_name=registry.MODEL.check,
        group="model",
    )
    trust_model: bool = setting(
        False, "load a .keras file, or the model of --init-from, even if that can run code of its author's"
    )
    weights: str = setting(
        "imagenet",
        "imagenet (downloaded once), none, or a weights file",
        metavar="FILE",
    )
    head_init: str = setting(
        "solve",
        "initial head: solve, a classifier fitted on the features of the untrained network; zeros; glorot "
        "as in the published code; or keep, of a model of your own",
        check_name=registry.HEAD_INIT.check,
    )
    augment: Optional[str] = setting(
        None,
        "random changes of training images: none, flip, standard, strong, or paper (flip, and up to 72 "
        "degrees either way); flip if not given, for the demo network none",
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
        "share of every class of the training images to choose the best epoch by, where the data has no "
        "validation part; where it has no test part either and --test-split is not given: to test on",
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
        None,
        "of hf: data, the column of the labels, where that is not label, or the only one of classes",
        metavar="NAME",
    )
    classes: Optional[int] = setting(
        None, "number of classes; comes from the data, and must agree with it", 2
    )
    image_memory: str = setting(
        "256MB",
        "memory for decoding an image: a larger image raises an error; bytes, or with kB, MB or GB",
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
        "the highest: at the first step, or after the warm-up; if not given, 2e-4 for sgd where a scheme "
        "takes --rho and the head is solved, else 1e-4",
        0,
    )
    weight_decay: float = setting(5e-4, "of sgd and adamw, per step, times the learning rate", 0)
    mixed_precision: bool = setting(
        False,
        "compute in bfloat16, weights stay float32; faster where the device has such arithmetic",
    )
    calibration_seconds: float = setting(
        40.0,
        "spent on timing steps when a profile is made, after the trace; less time: a less accurate profile",
        0,
        group="profile",
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
        "start from an earlier run's model; for the same classes its head is kept, for others a new one is "
        "solved",
        group="model",
        metavar="RUN",
    )
    keep: Optional[int] = setting(
        None,
        "store so many training images of each class in the run folder, for runs that start from it; with "
        "--init-from also keep that run's classes, and mix so many old images of each into training; 0: "
        "keep its classes, but no images",
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
    rho: float = setting(
        0.5, "elastic schemes: the training time to take, over that of full training (0.5: half)", 0.01, 1
    )
    time: Optional[str] = setting(
        None,
        "what the whole command may take, from its start to the finished run folder: 90s, 10m, 1.5h; instead "
        "of --rho and --epochs",
        check_name=quantities.seconds_of,
        metavar="TIME",
    )
    memory: Optional[str] = setting(
        None,
        "elastic schemes: what the whole process may take of memory, with --rho or --time: bytes, or with "
        "kB, MB or GB; auto: three quarters of what is free",
        check_name=quantities.limit_of,
        metavar="SIZE",
    )
    interval: Optional[int] = setting(
        None,
        "epochs between two selections; if not given, 4 with --reuse off, and as the time allows without",
        1,
    )
    epochs: int = setting(
        12,
        "passes over the training images; with --rho, those of the full training it refers to",
        1,
        group="training",
    )
    validation_freq: Optional[int] = setting(
        None,
        "evaluate after so many epochs, and after the last one; if not given, after each, in a run by the "
        "clock as often as a tenth of its time allows, and with --time only the solved head and the end. It "
        "is no training time, but counts in --time",
        1,
    )
    early_stopping: Optional[int] = setting(
        None,
        "end after so many epochs without a better validation accuracy (or the same at a lower loss); needs "
        "a validation part",
        1,
    )
    schedule: Optional[str] = setting(
        None,
        "of the learning rate: cosine (to zero at the end) or constant; if not given, constant for adam and "
        "cosine for the others",
        check_name=registry.SCHEDULE.check,
    )
    warmup: Optional[float] = setting(
        None,
        "share of the training in which the learning rate rises; if not given, 0.1 with --head-init solve, "
        "else 0",
        0,
        0.9,
    )
    label_smoothing: float = setting(0.0, "share of each label that is spread over all classes", 0, 0.9)
    class_weights: str = setting(
        "none",
        "balanced: an image counts the more, the fewer there are of its class; none: all count alike",
        check_name=registry.CLASS_WEIGHTS.check,
    )
    importance_batches: int = setting(5, "minibatches that a selection is based on", 1, group="speed")
    reuse: str = setting(
        "auto",
        "auto: activations of frozen layers are computed in one pass at the start of an interval, cached and "
        "read in its steps; off: they are computed in every step, as in the paper",
        check_name=registry.REUSE.check,
    )
    reuse_dtype: str = setting(
        "float16",
        "cached activations are stored as float16 or float32",
        check_name=registry.REUSE_DTYPE.check,
    )
    reuse_memory: Optional[str] = setting(
        None,
        "a larger cache goes into a file; bytes, or with kB, MB or GB; 2GB if not given, or a quarter of "
        "this machine's memory where that is less",
        check_name=quantities.bytes_of,
        metavar="SIZE",
    )
    reuse_dir: Optional[str] = setting(
        None, "where that file is, while training lasts (the run folder)", metavar="DIR"
    )
    strategy: str = setting(
        "none",
        "multi-worker: several processes, each on a share of every minibatch; you start them and name them "
        "in TF_CONFIG; none",
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
        False,
        "decode every image file before training, and leave out those that cannot be read, in all parts",
    )
    checkpoint_minutes: float = setting(
        10.0, "between checkpoints within an epoch; one is also written after every epoch", 0, group="run"
    )
    meter: Optional[str] = setting(
        None,
        "log of an external power meter, CSV of Unix time and watts, read at the end of the run",
        metavar="FILE",
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
        "the same seed and profile give the same result, bit for bit; the ops are slower, and the number of "
        "steps is that of --epochs, not what the time allows",
    )
