"""The profile to train with: where it is kept, what it must be a profile of, and how it is made."""

import hashlib
import itertools
import re
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import numpy as np
import tensorflow as tf

from elastictrainer.cache.costs import with_cache_costs
from elastictrainer.errors import UsageError
from elastictrainer.experiment import memory
from elastictrainer.experiment.checks import require_writable
from elastictrainer.experiment.settings import CommonSettings, TrainSettings, parse_seconds
from elastictrainer.models import augmentation
from elastictrainer.profiler.profile import Profile
from elastictrainer.profiler.profile_model import profile_model
from elastictrainer.runs import environment
from elastictrainer.runs.log import LOG
from elastictrainer.selection import schemes
from elastictrainer.steps.compiled_step import CompiledStep
from elastictrainer.steps.objective import Objective, classification_loss
from elastictrainer.steps.timing import time_steps
from elastictrainer.training.memory import MemoryLimit

PROFILES = Path("profiles")
_SHARE_OF_TIME = 0.1  # of a run with a deadline
_WHOLE_S, _SHORT_S = 80.0, 15.0  # of a profile before its calibration, for MobileNetV2 on two cores


def profile_metadata(
    settings: CommonSettings, model: tf.keras.Model, input_shape: Tuple[int, ...], class_count: int
) -> Dict[str, Any]:
    """Return the metadata that a profile must match to be used."""
    return {
        "model": settings.model,
        "input_shape": list(input_shape),
        "batch_size": settings.batch_size,
        "classes": class_count,
        "optimizer": settings.optimizer,
        "augmentation": augmentation.layer_kinds(model),
        "precision": "mixed_bfloat16" if settings.mixed_precision else "float32",
    }


def profile_path(metadata: Dict[str, Any]) -> Path:
    """Return the path at which the profile of `metadata` on this device is kept by default."""
    everything = repr((sorted(metadata.items()), environment.device(), environment.threads()))
    short = hashlib.sha1(everything.encode()).hexdigest()[:6]
    model = re.sub(r"[^A-Za-z0-9]+", "-", metadata["model"]).strip("-")
    shape = "x".join(str(d) for d in metadata["input_shape"][:-1])
    data = f"{shape}_c{metadata['classes']}_b{metadata['batch_size']}"
    return PROFILES / f"{model}_{data}_{metadata['optimizer']}_{short}.json"


def differences(profile: Profile, model: tf.keras.Model, metadata: Dict[str, Any]) -> List[str]:
    """List in which of model, data shape, optimizer and device a profile differs; empty where it fits."""
    wanted = {**metadata, "device": environment.device(), "threads": environment.threads()}
    found = profile.metadata
    unequal = {key: value for key, value in wanted.items() if found.get(key) != value}
    differing = [f"{key}: profile {found.get(key)}, here {value}" for key, value in unequal.items()]
    shapes = tuple(tuple(int(d) for d in v.shape) for v in model.trainable_weights)
    if shapes != profile.shapes:
        differing.append(f"trainable tensors: profile {len(profile)}, here {len(shapes)}, or of other shapes")
    return differing


def _load(path: Path, model: tf.keras.Model, metadata: Dict[str, Any]) -> Tuple[Optional[Profile], str]:
    """Load a profile; None where it cannot be used, and why."""
    try:
        profile = Profile.load(path)
    except UsageError as error:
        return None, str(error).rstrip(".")
    differing = differences(profile, model, metadata)
    if differing:
        return None, f"{path} is a profile of something else ({'; '.join(differing)})"
    return profile, ""


def obtain_profile(
    settings: TrainSettings,
    model: tf.keras.Model,
    metadata: Dict[str, Any],
    batch: Callable[[], Tuple[Any, Any]],
    optimizer: Any,
    wanted: bool,
    own: Optional[Path] = None,
    limit: Optional[float] = None,
    solves: bool = False,
) -> Optional[Profile]:
    """Load the profile to train with, or make and write it.

    None: it is not `wanted`, or there is no room to make it, and the head trains alone.

    Args:
        settings: `profile` names a file, which must fit.
        model, metadata: it must be a profile of these.
        batch: makes the minibatch to profile with.
        optimizer: to train with.
        wanted: whether the scheme cannot do without; otherwise it is only loaded, where it is there and fits.
        own: the file of a resumed run's own profile. It is made again where it is damaged or of
            something else: another device, a container's limit, a power mode.
        limit: bytes of the process; None: as many as it takes.
        solves: whether the head is to be solved, so that it can be trained alone.

    Raises:
        UsageError: the named file, or the one that is `wanted`, is damaged or of something else; or
            `limit` is too little for any training.
    """
    path = own or Path(settings.profile or profile_path(metadata))
    named = own is None and settings.profile is not None
    profile, why = None, "no profile of this model, shape, batch and device yet"
    if named or path.exists():
        profile, why = _load(path, model, metadata)
        if profile is None and (named or wanted and own is None):
            raise UsageError(f"{why}. Leave --profile out, or run et-profile with the same options.")
    if profile is not None:
        LOG.info(f"profile: {path}")
    elif wanted:
        short, options = effort(settings)
        if not short:
            require_writable_profile(path)
        minibatch = batch()
        limited = None if limit is None else memory.before_profile(limit, model, optimizer, minibatch)
        if limited is not None and not limited.examples:
            limited.scheme(schemes.create(settings.scheme), solves, profiled=False)
            return None
        LOG.info(f"{why}: making {'a short one' if short else 'one'}")
        profile = make_profile(model, minibatch, optimizer, metadata, limited, **options)
        # A device may be too slow to calibrate in the time that there is.
        short |= bool(settings.calibration_seconds and not profile.metadata["calibration_seconds"])
        if not short:
            profile.save(path)
        where = "for this run alone" if short else str(path)
        LOG.info(f"profile: {where} (full step {profile.full_ms:.1f} ms, rho_min {profile.rho_min:.3f})")
    return profile


class Effort(NamedTuple):
    """How a profile is made: in a `short` time, for one run alone; and the options of `make_profile`."""

    short: bool
    options: Dict[str, Any]


def effort(settings: TrainSettings) -> Effort:
    """Return the effort for a run's profile: with a deadline it takes a tenth of the time at most."""
    allowed_s = _SHARE_OF_TIME * parse_seconds(settings.time) if settings.time else np.inf
    if allowed_s >= _WHOLE_S + settings.calibration_seconds:
        return Effort(False, {"calibrate_s": settings.calibration_seconds, "allowed_s": allowed_s})
    calibrate_s = max(0.0, (allowed_s - _SHORT_S) / 1.5)  # the cache's costs take half as long again
    calibrate_s = min(calibrate_s, settings.calibration_seconds)
    few = {"warmup_steps": 10, "steps": 4}
    return Effort(True, {"calibrate_s": calibrate_s, "allowed_s": allowed_s, **few})


def require_writable_profile(path: Path) -> None:
    """Raise UsageError, before anything is measured, if a profile cannot be written."""
    if path.is_dir():
        raise UsageError(f"cannot write the profile {path}: it is a folder.")
    require_writable(path.parent, f"cannot write the profile {path}")


def _example_ms(step: CompiledStep, batch: Tuple[Any, Any]) -> float:
    """Return by how many milliseconds a step on the minibatch `batch` takes longer for each example."""
    examples = len(batch[0])
    half = (batch[0][: examples // 2], batch[1][: examples // 2])
    taken = [np.median(time_steps(step, itertools.repeat(part))) for part in (half, batch)]
    return float(np.clip((taken[1] - taken[0]) / (examples - examples // 2), 0, taken[1] / examples))


def make_profile(
    model: tf.keras.Model,
    batch: Tuple[Any, Any],
    optimizer: Any,
    metadata: Dict[str, Any],
    limit: Optional[MemoryLimit] = None,
    **options: Any,
) -> Profile:
    """Profile `model` as it will be trained, and say what could not be measured.

    `limit`: of the process's memory; None: none. Times on fewer examples than those of `batch` are scaled.
    """
    accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")
    objective = Objective(model, classification_loss())
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
