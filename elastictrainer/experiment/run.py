"""A run of et-train: everything made from its settings, trained, and left in its folder."""

import dataclasses
import functools
import math
import os
import sys
from pathlib import Path
from typing import Callable, List, Mapping, Optional, Tuple, Union

import tensorflow as tf

from elastictrainer.cache.settings import CacheSettings
from elastictrainer.data.image_data import ImageData
from elastictrainer.errors import DamagedImages, DataError, UnreadableImages, UsageError
from elastictrainer.experiment import assembly, profiling, run_images
from elastictrainer.experiment.exporting import export_run
from elastictrainer.experiment.settings import (
    TrainSettings,
    parse_bytes,
    parse_seconds,
    rate_schedule,
)
from elastictrainer.models.solved_head import hold_columns
from elastictrainer.profiler.profile import Profile
from elastictrainer.registry import EXPORT_FILES
from elastictrainer.runs import environment, resident
from elastictrainer.runs.log import LOG
from elastictrainer.runs.run_folder import Record, RunFolder
from elastictrainer.selection import schemes
from elastictrainer.steps.keras_compat.layers import layers_in_bfloat16
from elastictrainer.steps.objective import training_loss
from elastictrainer.training.callbacks import RisingLoss, named_callbacks, require_supported_callbacks
from elastictrainer.training.checkpoints import Checkpointing
from elastictrainer.training.clock import Deadline, process_age_s
from elastictrainer.training.energy import EnergyMetering, find_sensor
from elastictrainer.training.evaluation import BestWeights, Evaluation
from elastictrainer.training.planner import EVALUATION
from elastictrainer.training.record import RunRecord
from elastictrainer.training.trainer import Trainer

# Measured with MobileNetV2: what holds until the run has measured it, and what it cannot measure.
_COMPILING_S = 0.6  # of the evaluation's graph
_WRITING_S = 0.7  # of the model
_LEAVING_S = 1.0  # to print the summary and to leave Python: half of it measured, half to be in time
_EXPORT_S = 15.0  # for each format
_WHOLE_RUN = sys.maxsize  # epochs of an interval: the same layers train to the end, and their cache stays
_LATE = 0.02  # of the time: less is not said


def train(settings: TrainSettings, run: RunFolder, resume: bool, extra_time: Optional[str] = None) -> Record:
    """Train into the folder `run`; returns the summary."""
    try:
        return _train(settings, run, resume, extra_time)
    except (DamagedImages, UnreadableImages) as error:
        about = run.environment()
        if about and error.files:  # the run can be resumed when they were replaced or deleted
            noted = about.get("damaged", {})
            damaged = sorted({*noted.get("damaged", ()), *error.files})
            run.write_environment({**about, "damaged": {**noted, "damaged": damaged}})
        raise


def _train(settings: TrainSettings, run: RunFolder, resume: bool, extra_time: Optional[str]) -> Record:
    """Make all parts of the run from its settings, train, and export: each line hands on what it made."""
    if settings.memory:  # before the process' first tensor
        resident.give_back_freed_memory()
    users = named_callbacks(settings.callback)
    loaded_s = process_age_s()
    settings = dataclasses.replace(settings, precision=profiling.choose_precision(settings))
    measured_s = process_age_s() - loaded_s
    assembly.configure(settings.seed, settings.deterministic, settings.precision)
    data, model, kept, about = assembly.load_inputs(settings, run, resume)
    scheme, head = schemes.create(settings.scheme), _head(settings, data, model)
    decided = dataclasses.replace(settings, head_init=head)  # rates are for it: a kept head is not solved
    rates, optimizer = rate_schedule(decided), assembly.make_optimizer(decided)
    require_supported_callbacks(users, optimizer, checkpointed=True, rates=rates)
    if not scheme.trains and head != "solve":
        raise UsageError(
            f"--scheme {settings.scheme} solves the head, which is kept here: the model knows these classes "
            "already, or its head cannot be solved. Take another scheme."
        )
    checkpointing = Checkpointing(run, settings.checkpoint_minutes, resume)
    solves = head == "solve" and not checkpointing.trained_layers  # what has trained has its head
    limit = profiling.memory_limit(settings.memory)
    own = run.profile_path if resume and run.profile_path.exists() else None
    profile = None
    if own or not checkpointing.trained_layers:  # else its checkpoint is of steps without a profile
        profile = profiling.obtain_profile(
            settings, data, model, optimizer, scheme, own=own, limit=limit, measured_s=measured_s
        )
    if limit is None:
        profiling.note_shortage(profile)
    else:  # a forward pass of training fits; one of the usual 32 images may not
        smaller = min(data.evaluation_batch_size, settings.batch_size)
        data = dataclasses.replace(data, evaluation_batch_size=smaller)
    sensor, source = find_sensor()
    LOG.info(f"energy: {source}" if sensor else f"energy is not measured: {source}")

    record, rising = RunRecord(run, seed=settings.seed), RisingLoss(len(data.class_names))
    images, evaluation = _evaluation(settings, data, run, checkpointing.stop_if_asked)
    deadline = _deadline(settings, extra_time, model, profile, images, record)
    trained_by: Union[str, schemes.Scheme] = settings.scheme
    interval, cache = settings.interval, _cache(settings, run)
    if profile is None and scheme.selects:  # there was no room, or no time
        trained_by, cache = profiling.without_profile(settings, data, model, optimizer, cache, limit, solves)
        interval, limit = interval or _WHOLE_RUN, limit if trained_by.selects else None
    trainer = Trainer(
        model,
        scheme=trained_by,
        probe=data.probe,
        activation_cache=cache,
        rho=settings.rho,
        interval=interval,
        importance_batches=settings.importance_batches,
        deterministic=settings.deterministic,
        fold=settings.fold == "on",
        head=head,
        profile=profile,
        rates=rates,
        deadline=deadline,
        memory=limit,
    )
    loss = training_loss(settings.label_smoothing, _class_weights(settings, data))
    accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")
    trainer.compile(optimizer, loss, metrics=[accuracy])
    _fill_folder(run, settings, resume, profile, kept, about)
    resident.exempt_from_collection()
    try:
        history = trainer.fit(
            data.stream,
            epochs=settings.epochs,
            steps_per_epoch=data.steps_per_epoch,
            shuffle=True,
            callbacks=[EnergyMetering(sensor), evaluation, record, rising, *users, checkpointing],
            verbose=0,
        )
    except DataError as error:
        raise data.train_split.find_corrupt() or error from None
    _export(settings, run, resume)
    if deadline:
        _tell_lateness(deadline)
    summary: Record = history.elastic
    return summary


def _head(settings: TrainSettings, data: ImageData, model: tf.keras.Model) -> str:
    """Return whether the head is to be solved: "solve" or "keep"; a line says why it is not, where asked for.

    A model that knows the classes of the data already keeps its head.
    """
    if settings.head_init != "solve":
        return "keep"
    if settings.init_from and RunFolder(settings.init_from).class_names() == list(data.class_names):
        return "keep"
    earlier = run_images.earlier_run(settings)
    try:
        hold_columns(model, len(earlier.class_names()) if earlier else 0)
    except UsageError as error:
        LOG.info(f"note: {error}")
        return "keep"
    return "solve"


def _evaluation(
    settings: TrainSettings, data: ImageData, run: RunFolder, stop: Callable[[], None]
) -> Tuple[int, Evaluation]:
    """Return how many images are evaluated at the end of a run, and the callback that does it.

    `stop` is called before each of its minibatches, and may end the run.
    """
    every, tested = settings.validation_freq, data.evaluated_count("test")
    if data.val_split is None:
        return tested, Evaluation(data.test, stop, every, tested)
    # Weights that a validation part chooses are tested at the end, after the last ones were validated.
    counts, early = (data.evaluated_count("val"), tested), settings.early_stopping
    return sum(counts), BestWeights(data.validation, data.test, run, early, stop, every, counts)


def _deadline(
    settings: TrainSettings,
    extra_time: Optional[str],
    model: tf.keras.Model,
    profile: Optional[Profile],
    images: int,
    record: RunRecord,
) -> Optional[Deadline]:
    """Return the time that the whole process may take; None: its steps end the run."""
    if not settings.time:
        return None
    image_s = None  # is measured where no profile tells: steps in bfloat16 do not, evaluation is in float32
    if profile is not None and not layers_in_bfloat16(model):
        image_s = EVALUATION * 1e-3 / settings.batch_size * profile.full_ms * profile.forward_share
    more_s = parse_seconds(extra_time) if extra_time else 0.0
    reserve_s = functools.partial(_reserve_s, record, len(settings.export_formats))
    return Deadline(parse_seconds(settings.time), reserve_s, more_s, images=images, image_s=image_s)


def _cache(settings: TrainSettings, run: RunFolder) -> CacheSettings:
    """Return the settings of the activation cache; what is not held in memory lies in the run folder."""
    limit, folder = settings.activation_cache_memory, settings.activation_cache_dir
    return CacheSettings(
        settings.activation_cache,
        settings.activation_cache_dtype,
        parse_bytes(limit) if limit else None,
        Path(folder) if folder else run.path,
        settings.seed,
    )


def _class_weights(settings: TrainSettings, data: ImageData) -> Optional[List[float]]:
    """Return the weight of each label in the loss; None: all count alike."""
    if settings.class_weights == "balanced":
        return data.class_weights()
    mixed = run_images.earlier_run(settings) is not None and settings.keep
    return run_images.class_weights(data) if mixed else None


def _fill_folder(
    run: RunFolder,
    settings: TrainSettings,
    resume: bool,
    profile: Optional[Profile],
    kept: Optional[run_images.KeptImages],
    about: Mapping[str, object],
) -> None:
    """Write what is known before the first step; from the config on the run can be resumed.

    `about` are entries of environment.json.
    """
    if not resume:
        run.begin()
        # As --config of another run it must not replace this one.
        run.write_config({**dataclasses.asdict(settings), "overwrite": False})
    if kept is not None and not run.kept_path.exists():
        kept.save(run.kept_path)
    if profile is not None and not run.profile_path.exists():
        profile.save(run.profile_path)
    if not run.environment_path.exists():
        started = {"seed": settings.seed, "arguments": sys.argv[1:], "directory": os.getcwd()}
        run.write_environment({**environment.describe(), **started, **about})


def _export(settings: TrainSettings, run: RunFolder, resume: bool) -> None:
    """Export the trained model as asked; name files of the model before, where a run was given more time."""
    if settings.export_formats:
        for path in export_run(run, settings.export_formats, overwrite=resume, trust=True):  # just written
            LOG.info(f"written: {path}")
    for form, name in EXPORT_FILES.items():
        if form not in settings.export_formats and (run.export_path / name).exists():
            LOG.info(
                f"note: {run.export_path / name} is of the model before: et-export {run.path} "
                f"--format {form} --overwrite writes it again"
            )


def _reserve_s(record: RunRecord, exports: int) -> float:
    """Return the seconds of what comes after a run's last step, without evaluation.

    `record` tells what writing the model takes, once it has done so; `exports`: the number of formats.
    """
    writing_s = 2 * (record.writing_s or _WRITING_S)  # the last checkpoint, and the model
    return _COMPILING_S + writing_s + _LEAVING_S + _EXPORT_S * exports


def _tell_lateness(deadline: Deadline) -> None:
    """Say how late the run is, and with which --time it would be in time; a little is not said."""
    given_s, taken_s = deadline.more_s or deadline.seconds, process_age_s()
    if taken_s > (1 + _LATE) * given_s:
        LOG.info(
            f"late by {taken_s - given_s:.0f} s: the least that a run does took {taken_s:.0f} s here, with "
            f"--time {math.ceil(taken_s)}s it is in time"
        )
