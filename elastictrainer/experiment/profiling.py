"""The profile to train with, and the limit of memory: how they are found, made and checked."""

import contextlib
import dataclasses
import hashlib
import itertools
import json
import re
from pathlib import Path
from typing import Any, List, Optional, Tuple

import numpy as np
import tensorflow as tf

from elastictrainer.cache.costs import with_cache_costs
from elastictrainer.cache.settings import CacheSettings
from elastictrainer.data.image_data import ImageData, Minibatch
from elastictrainer.errors import UsageError
from elastictrainer.experiment import assembly
from elastictrainer.experiment.options import require_writable
from elastictrainer.experiment.settings import CommonSettings, TrainSettings, parse_bytes, parse_seconds
from elastictrainer.models import zoo
from elastictrainer.profiler.profile import Profile
from elastictrainer.profiler.profile_model import TooSlow, profile_model, traced_memory
from elastictrainer.registry import MODEL
from elastictrainer.runs import environment, resident
from elastictrainer.runs.files import write_json
from elastictrainer.runs.log import LOG
from elastictrainer.runs.run_folder import Record
from elastictrainer.selection import schemes
from elastictrainer.selection.schemes import Scheme
from elastictrainer.steps import optimizers
from elastictrainer.steps.compiled_step import CompiledStep
from elastictrainer.steps.objective import Objective, classification_loss
from elastictrainer.steps.timing import step_ms, time_steps, warm_up
from elastictrainer.training.clock import process_age_s
from elastictrainer.training.memory import MemoryLimit, weight_bytes

PROFILES = Path("profiles")
_WORTH_ROUNDING = 0.9  # of float32's full step, at most; passes and cached steps gain more
_TRIED = 16  # images in the steps that tell, as in training: with fewer the casts of weights count more
_SHARE_OF_TIME = 0.1  # of a run with a deadline
_WHOLE_S, _SHORT_S = 160.0, 20.0  # of a profile besides its calibration, for MobileNetV2
_NO_TIME = "no profile: it would take more than a tenth of the time. The last layers train, if there is time"
_LIKE_LOADING = 3.0  # times as long as all before it takes a short profile, at least, also on a slow device
_STEPS_VERSION = 3  # another number forgets the times that were kept before steps computed as they do now
_FORMATS_S, _FORMATS_LIKE_LOADING = 10.0, 1.75  # measuring both formats: seconds at least, or loadings
_FREE_SHARE = 0.75  # of what is free, this process included: --memory auto


def choose_precision(settings: CommonSettings) -> str:
    """Return the format that layers are to compute in: "float32" or "bfloat16".

    By "auto" it is that of the profile that is named. Without one full steps of a built-in network are timed
    in both where the device has bfloat16 units; the times are kept in the folder of profiles. It is float32
    without a measurement for a network of the user's, which may not be made for both, within a limit of
    memory, which two steps to compare might not keep, in a deterministic run, where no time decides, and
    where a tenth of the run's time is too little to find out. No list of what a processor has tells which is
    faster: on one with such units EfficientNetB0 took 1.4 times as long in bfloat16, and MobileNetV2 0.8.
    """
    if settings.precision != "auto":
        return settings.precision
    if isinstance(settings, TrainSettings) and settings.profile and Path(settings.profile).exists():
        return assembly.precision_of(Profile.load(settings.profile))
    unmeasured = isinstance(settings, TrainSettings) and (settings.memory or settings.deterministic)
    if unmeasured or settings.model not in MODEL.names or not environment.has_bfloat16():
        return "float32"
    size = settings.image_size or zoo.default_image_size(settings.model)
    what = repr(
        (_STEPS_VERSION, settings.model, size, settings.optimizer, settings.fold, environment.describe())
    )
    path = PROFILES / f"precision_{hashlib.sha1(what.encode()).hexdigest()[:12]}.json"
    times: Record = {}
    with contextlib.suppress(OSError, ValueError):
        times = json.loads(path.read_text())
    if set(times) != {"float32", "bfloat16"}:
        if max(_FORMATS_S, _FORMATS_LIKE_LOADING * process_age_s()) > _allowed_s(settings):
            return "float32"
        times = {name: _full_step_ms(settings, name) for name in ("float32", "bfloat16")}
        with contextlib.suppress(OSError):  # a later run measures again
            write_json(path, times)
    chosen = "bfloat16" if times["bfloat16"] <= _WORTH_ROUNDING * times["float32"] else "float32"
    LOG.info(
        f"precision: {chosen} (a full step of {_TRIED} images takes {times['float32']:.0f} ms in float32, "
        f"{times['bfloat16']:.0f} in bfloat16)"
    )
    return chosen


def _full_step_ms(settings: CommonSettings, precision: str) -> float:
    """Return the ms of a full step of the network, with random weights, on a few random images."""
    assembly.configure(settings.seed, precision=precision)
    model = assembly.make_model(dataclasses.replace(settings, weights="none"), settings.classes or 10)
    shape = (*assembly.image_size(settings, model), model.input_shape[-1])
    optimizer, variables = assembly.make_optimizer(settings), model.trainable_variables
    optimizers.build(optimizer, variables)
    objective = Objective(model, classification_loss(), fold=settings.fold == "on")
    step = CompiledStep(objective, optimizer, variables)
    images = tf.random.uniform((_TRIED, *shape), 0, 255), tf.zeros(_TRIED, tf.int64)
    warm_up(step, images, 2)
    times = step_ms(step, images, 4)
    tf.keras.backend.clear_session()  # the names of the network's layers are free again
    return float(np.min(times))  # other work adds time


def profile_path(metadata: Record) -> Path:
    """Return the path at which the profile of `metadata` on this device is kept by default."""
    everything = repr((sorted(metadata.items()), environment.device(), environment.threads()))
    short = hashlib.sha1(everything.encode()).hexdigest()[:6]
    model = re.sub(r"[^A-Za-z0-9]+", "-", metadata["model"]).strip("-")
    shape = "x".join(str(d) for d in metadata["input_shape"][:-1])
    data = f"{shape}_c{metadata['classes']}_b{metadata['batch_size']}"
    return PROFILES / f"{model}_{data}_{metadata['optimizer']}_{short}.json"


def differences(profile: Profile, model: tf.keras.Model, metadata: Record) -> List[str]:
    """List in which of model, data shape, optimizer and device a profile differs; empty where it fits."""
    wanted = {**metadata, "device": environment.device(), "threads": environment.threads()}
    found = profile.metadata
    unequal = {key: value for key, value in wanted.items() if found.get(key) != value}
    differing = [f"{key}: profile {found.get(key)}, here {value}" for key, value in unequal.items()]
    shapes = tuple(tuple(int(d) for d in v.shape) for v in model.trainable_weights)
    if shapes != profile.shapes:
        differing.append(f"trainable tensors: profile {len(profile)}, here {len(shapes)}, or of other shapes")
    return differing


def _load(path: Path, model: tf.keras.Model, metadata: Record) -> Profile:
    """Load a profile; UsageError where it is damaged, or of something else."""
    profile = Profile.load(path)
    differing = differences(profile, model, metadata)
    if differing:
        raise UsageError(f"{path} is a profile of something else ({'; '.join(differing)})")
    return profile


def obtain_profile(
    settings: TrainSettings,
    data: ImageData,
    model: tf.keras.Model,
    optimizer: tf.keras.optimizers.Optimizer,
    scheme: Scheme,
    own: Optional[Path] = None,
    limit: Optional[float] = None,
    measured_s: float = 0.0,
) -> Optional[Profile]:
    """Load the profile to train with, or make and write it.

    None: the `scheme` does not select, or there is no time (a tenth of --time at most) or no room to make it.

    Args:
        settings: of the run. A profile that they name must fit; else it is one of `profiles/`.
        data: to train on; a minibatch is profiled with.
        model, optimizer: to train, and with.
        scheme: one that selects cannot do without; for another the profile is only loaded, if it is there.
        own: the file of a resumed run's own profile. It is made again where it is damaged or of
            something else: another device, a container's limit, a power mode.
        limit: bytes of the process; None: as many as it takes.
        measured_s: of the process, that went into measuring formats: no sign of a slow device.

    Raises:
        UsageError: the file that the settings name, or the one that is needed, is damaged or of something
            else.
    """
    metadata = _metadata(settings, data, model)
    path = own or Path(settings.profile or profile_path(metadata))
    is_named = own is None and settings.profile is not None
    why = "no profile of this model, shape, batch and device yet"
    if is_named or path.exists():
        try:
            profile = _load(path, model, metadata)
            LOG.info(f"profile: {path}")
            return profile
        except UsageError as error:
            why = str(error).rstrip(".")
            if is_named or scheme.selects and own is None:
                advice = "Leave --profile out, or run et-profile with the same options."
                raise UsageError(f"{why}. {advice}") from None
    if not scheme.selects:
        return None
    short, options = _effort(settings)
    if short and options["allowed_s"] < max(_SHORT_S, _LIKE_LOADING * (process_age_s() - measured_s)):
        LOG.info(_NO_TIME)
        return None
    if not short:
        require_writable_profile(path)
    minibatch = next(data.train(0))
    limited = None if limit is None else _before_profile(limit, model, optimizer, minibatch, metadata)
    if limited is not None and not limited.examples:
        return None
    LOG.info(f"{why}: making {'a short one' if short else 'one'}")
    try:
        profile = make_profile(model, minibatch, optimizer, metadata, limited, **options)
    except TooSlow:
        LOG.info(_NO_TIME)
        return None
    # A device may be too slow to calibrate in the time that there is.
    short |= profile.metadata["calibration_seconds"] < settings.calibration_seconds / 2
    if not short:
        profile.save(path)
    where = "for this run alone" if short else str(path)
    LOG.info(f"profile: {where} (full step {profile.full_ms:.1f} ms, rho_min {profile.rho_min:.3f})")
    return profile


def without_profile(
    settings: TrainSettings,
    data: ImageData,
    model: tf.keras.Model,
    optimizer: tf.keras.optimizers.Optimizer,
    cache: CacheSettings,
    limit: Optional[float],
    solves: bool,
) -> Tuple[Scheme, CacheSettings]:
    """Return the scheme of a run that was to select but has no profile, and the settings of its cache.

    The last layers train, as many as a `limit` of bytes has room for. Without a deadline, full steps say what
    a share of their time is; where there is no room for these, the head trains alone.

    Args:
        settings, data, model, optimizer, limit: as of `obtain_profile`.
        cache: the settings that were asked for.
        solves: whether the head is to be solved, so that it can be trained alone.

    Raises:
        UsageError: `limit` is too little for any training.
    """
    limited = None
    if limit is not None:
        minibatch, metadata = next(data.train(0)), _metadata(settings, data, model)
        limited = _before_profile(limit, model, optimizer, minibatch, metadata)
    if limited is None:
        return schemes.LastLayers(), cache
    scheme = limited.last_layers() if settings.time else None
    if scheme is None:
        least = limited.last_layers_bytes(2) if settings.time else limited.measuring_bytes(1)
        scheme = limited.scheme(schemes.create("freeze-below"), solves, least)
    return scheme, limited.cache(cache)


def _metadata(settings: TrainSettings, data: ImageData, model: tf.keras.Model) -> Record:
    shape = (*data.image_size, model.input_shape[-1])
    return assembly.profile_metadata(settings, model, shape, len(data.class_names))


def _allowed_s(settings: CommonSettings) -> float:
    """Return the seconds that may be spent on measuring before a run."""
    time = settings.time if isinstance(settings, TrainSettings) else None
    return _SHARE_OF_TIME * parse_seconds(time) if time else np.inf


def _effort(settings: TrainSettings) -> Tuple[bool, Record]:
    """Return whether a profile is made in a short time, for one run alone, and options of `make_profile`."""
    allowed_s = _allowed_s(settings)
    options = {"calibrate_s": settings.calibration_seconds, "allowed_s": allowed_s}
    if allowed_s >= _WHOLE_S + settings.calibration_seconds:
        return False, options
    return True, {**options, "must_fit": True, "warmup_steps": 10, "steps": 4}


def require_writable_profile(path: Path) -> None:
    """Raise UsageError, before anything is measured, if a profile cannot be written."""
    if path.is_dir():
        raise UsageError(f"cannot write the profile {path}: it is a folder.")
    require_writable(path.parent, f"cannot write the profile {path}")


def _example_ms(step: CompiledStep, batch: Minibatch) -> float:
    """Return by how many milliseconds a step on the minibatch `batch` takes longer for each example."""
    examples = len(batch[0])
    half = (batch[0][: examples // 2], batch[1][: examples // 2])
    taken = [np.median(time_steps(step, itertools.repeat(part))) for part in (half, batch)]
    return float(np.clip((taken[1] - taken[0]) / (examples - examples // 2), 0, taken[1] / examples))


def make_profile(
    model: tf.keras.Model,
    batch: Minibatch,
    optimizer: tf.keras.optimizers.Optimizer,
    metadata: Record,
    limit: Optional[MemoryLimit] = None,
    **options: Any,
) -> Profile:
    """Profile `model` as it will be trained, and say what could not be measured.

    `limit`: of the process's memory; None: none. Times on fewer examples than those of `batch` are scaled.
    """
    accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")
    objective = _objective(model, metadata)
    examples = int(batch[0].shape[0])
    fitting, undo = (examples, False) if limit is None else (limit.examples, limit.must_undo)
    if fitting < examples:
        LOG.info(f"memory: the profile is measured on {fitting} of {examples} images; its times are scaled")
        batch = batch[0][:fitting], batch[1][:fitting]
    options.update(metrics=(accuracy,), metadata=metadata, undo=undo)
    profile = profile_model(model, objective, batch, optimizer, **options)
    profile = with_cache_costs(profile, objective, optimizer, batch)
    if fitting < examples:
        if fitting > 1 and not undo:
            step = CompiledStep(objective, optimizer, model.trainable_variables, (accuracy,))
            profile.metadata["example_ms"] = _example_ms(step, batch)
        profile = profile.for_batch(fitting, examples)
    for words, which in {
        "the loss does not depend on these tensors; they cannot be trained": ~profile.connected,
        "no op could be charged to these tensors; their time is estimated from FLOPs": profile.estimated,
    }.items():
        names = [name for name, marked in zip(profile.names, which) if marked]
        if names:
            LOG.info(f"note: {words}: {', '.join(names)}")
    return profile


def memory_limit(asked: Optional[str]) -> Optional[float]:
    """Return the bytes that a run may take by --memory; None: as many as it takes. UsageError on a GPU."""
    if asked is None:
        return None
    if tf.config.list_physical_devices("GPU"):
        raise UsageError(f"--memory {asked}: a step on a GPU takes the GPU's memory. Leave it out.")
    return _FREE_SHARE * _free_bytes() if asked == "auto" else parse_bytes(asked)


def note_shortage(profile: Optional[Profile]) -> None:
    """Log a note if the full steps of a run without a limit do not fit into what is free."""
    if profile is None or profile.memory is None:
        return
    free = _free_bytes()
    needed = resident.resident_bytes() + profile.memory.step_bytes(profile.connected)
    if needed > free:
        LOG.info(
            f"note: full steps take {needed / 1e9:.2f} GB, and {free / 1e9:.2f} GB are free. "
            f"--memory {int(_FREE_SHARE * free / 1e7) * 1e7 / 1e9:g}GB keeps the run within that."
        )


def _objective(model: tf.keras.Model, metadata: Record) -> Objective:
    return Objective(model, classification_loss(), fold=metadata.get("folded", True))


def _before_profile(
    limit: float,
    model: tf.keras.Model,
    optimizer: tf.keras.optimizers.Optimizer,
    batch: Minibatch,
    metadata: Record,
) -> Optional[MemoryLimit]:
    """Return what fits into a process of `limit` bytes, by a full step that is traced but never runs.

    None on a GPU.
    """
    variables = model.trainable_variables
    optimizers.build(optimizer, variables)
    step = CompiledStep(_objective(model, metadata), optimizer, variables)
    memory = traced_memory(step, batch)
    if memory is None:
        return None
    connected = np.array([gradient is not None for gradient in step.gradients])
    return MemoryLimit(limit, memory, connected, weight_bytes(v.shape for v in variables))


def _free_bytes() -> float:
    """Return the bytes that this process may have, what it has already included."""
    return resident.available_bytes() + resident.resident_bytes()
