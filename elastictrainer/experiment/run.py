"""A run of et-train: everything made from its settings, trained, and left in its folder."""

import dataclasses
import math
import os
import sys
from pathlib import Path
from typing import Any, Dict, Optional

import tensorflow as tf

from elastictrainer.cache.settings import CacheSettings
from elastictrainer.data.image_data import ImageData
from elastictrainer.errors import DamagedImages, DataError, UnreadableImages, UsageError
from elastictrainer.experiment import assembly, keeping, memory, profiling
from elastictrainer.experiment.exporting import export_run
from elastictrainer.experiment.inputs import Inputs, load_inputs
from elastictrainer.experiment.settings import TrainSettings, parse_bytes, parse_seconds, rate_schedule
from elastictrainer.models.solved_head import hold_columns
from elastictrainer.profiler.profile import Profile
from elastictrainer.runs import environment, resident
from elastictrainer.runs.log import LOG, printed
from elastictrainer.runs.run_folder import RunFolder
from elastictrainer.selection import schemes
from elastictrainer.steps.objective import training_loss
from elastictrainer.training.callbacks import RisingLoss, named_callbacks, require_supported_callbacks
from elastictrainer.training.checkpoints import Checkpointing
from elastictrainer.training.clock import Deadline
from elastictrainer.training.energy import EnergyMetering, find_sensor
from elastictrainer.training.evaluation import BestWeights, Evaluation
from elastictrainer.training.record import RunRecord
from elastictrainer.training.trainer import Trainer

# Measured with MobileNetV2: what holds until the run has measured it, and what it cannot measure.
_HEAD_SHARE = 0.03  # of the time, for the evaluation of the solved head
_EVALUATION = 0.75  # of the forward pass of training, at 224x224
_COMPILING_S = 0.6  # of the evaluation's graph
_WRITING_S = 0.7  # of the model
_LEAVING_S = 1.0  # to print the summary and to leave Python: half of it measured, half to be in time
_EXPORT_S = 15.0  # for each format


def train(
    settings: TrainSettings, run: RunFolder, resume: bool, extra_time: Optional[str] = None
) -> Dict[str, Any]:
    """Train into the folder `run`; returns the summary."""
    with printed():
        try:
            return _train(settings, run, resume, extra_time)
        except (DamagedImages, UnreadableImages) as error:
            about = run.environment()
            if about and error.files:  # the run can be resumed when they were replaced or deleted
                noted = about.get("damaged", {})
                damaged = sorted({*noted.get("damaged", ()), *error.files})
                run.write_environment({**about, "damaged": {**noted, "damaged": damaged}})
            raise


def _train(
    settings: TrainSettings, run: RunFolder, resume: bool, extra_time: Optional[str]
) -> Dict[str, Any]:
    if settings.memory:  # before the process' first tensor
        resident.give_back_freed_memory()
    users = named_callbacks(settings.callback)
    assembly.configure(settings.seed, settings.deterministic, settings.mixed_precision)
    inputs = load_inputs(settings, run, resume)
    data, model = inputs.data, inputs.model
    optimizer = assembly.make_optimizer(settings)
    rates = rate_schedule(settings)
    require_supported_callbacks(users, optimizer, checkpointed=True, rates=rates)
    scheme, head = schemes.create(settings.scheme), _head(settings, data, model)
    if not scheme.trains and head != "solve":
        raise UsageError(
            f"--scheme {settings.scheme} solves the head, which is kept here: the model knows these classes "
            "already, or its head cannot be solved. Take another scheme."
        )
    limit = memory.limit(settings.memory)
    checkpointing = Checkpointing(run, settings.checkpoint_minutes, resume)
    solves = head == "solve" and not checkpointing.resumes  # what has trained has its head
    shape = (*data.image_size, model.input_shape[-1])
    profile = profiling.obtain_profile(
        settings,
        model,
        profiling.profile_metadata(settings, model, shape, len(data.class_names)),
        lambda: next(data.train(0)),
        optimizer,
        scheme.selects,
        run.profile_path if resume and run.profile_path.exists() else None,
        limit,
        solves,
    )
    if limit is None:
        memory.note_shortage(profile)
    sensor, source = find_sensor()
    LOG.info(f"energy: {source}" if sensor else f"energy is not measured: {source}")

    record = RunRecord(run, seed=settings.seed)
    if limit is not None:  # a forward pass of training fits; one of the usual 32 images may not
        data = dataclasses.replace(
            data, evaluation_batch_size=min(data.evaluation_batch_size, settings.batch_size)
        )
    image_s = _evaluating_s(settings, profile)
    one_of = _head_stride(settings, data, image_s)
    evaluation = _evaluation(settings, data, run, checkpointing, one_of)
    deadline = deadline_of(settings, data, evaluation, record, image_s, one_of, extra_time)
    trained_by = settings.scheme
    if limit is not None and profile is None and scheme.selects:
        trained_by, limit = "head-alone", None
    trainer = Trainer(
        model,
        scheme=trained_by,
        probe=data.probe,
        activation_cache=_cache(settings, run),
        rho=settings.rho,
        interval=settings.interval,
        importance_batches=settings.importance_batches,
        deterministic=settings.deterministic,
        head=head,
        profile=profile,
        rates=rates,
        deadline=deadline,
        memory=limit,
    )
    accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")
    trainer.compile(optimizer, _loss(settings, data), metrics=[accuracy])
    rising = RisingLoss(len(data.class_names))
    callbacks = [EnergyMetering(sensor), evaluation, record, rising, *users, checkpointing]
    _begin(settings, run, resume, profile, inputs)
    resident.exempt_from_collection()
    try:
        history = trainer.fit(
            data.stream,
            epochs=settings.epochs,
            steps_per_epoch=data.steps_per_epoch,
            shuffle=True,
            callbacks=callbacks,
            verbose=0,
        )
    except DataError as error:
        raise data.train_split.find_corrupt() or error from None
    if settings.export_formats:
        for path in export_run(run, settings.export_formats, trust=True):  # just written
            LOG.info(f"written: {path}")
    summary: Dict[str, Any] = history.elastic
    return summary


def _begin(
    settings: TrainSettings, run: RunFolder, resume: bool, profile: Optional[Profile], inputs: Inputs
) -> None:
    """Write the settings that a run is resumed by, and its environment."""
    if not resume:
        run.begin()
        # From here on it can be resumed. As --config of another run it must not replace this one.
        run.write_config({**dataclasses.asdict(settings), "overwrite": False})
    if inputs.kept is not None and not run.kept_path.exists():
        inputs.kept.save(run.kept_path)
    if profile is not None and not run.profile_path.exists():
        profile.save(run.profile_path)
    if not run.environment_path.exists():
        started = {"seed": settings.seed, "arguments": sys.argv[1:], "directory": os.getcwd()}
        run.write_environment({**environment.describe(), **started, **inputs.about})


def _cache(settings: TrainSettings, run: RunFolder) -> CacheSettings:
    most, folder = settings.activation_cache_memory, settings.activation_cache_dir
    return CacheSettings(
        settings.activation_cache,
        settings.activation_cache_dtype,
        parse_bytes(most) if most else None,
        Path(folder) if folder else run.path,
        settings.seed,
    )


def _loss(settings: TrainSettings, data: ImageData) -> Any:
    """Return the loss to train with."""
    weights = data.class_weights() if settings.class_weights == "balanced" else None
    if weights is None and settings.init_from and settings.keep:
        weights = keeping.class_weights(data)
    return training_loss(settings.label_smoothing, weights)


def _evaluation(
    settings: TrainSettings, data: ImageData, run: RunFolder, checkpointing: Checkpointing, one_of: int
) -> Evaluation:
    """Return the evaluation between epochs: on the validation part, or the test part where there is none."""
    stop, every = checkpointing.stop_if_asked, settings.validation_freq
    if data.val_split is None:
        return Evaluation(data.test, stop, every, one_of)
    return BestWeights(data.validation, data.test, run, settings.early_stopping, stop, every)


def _head(settings: TrainSettings, data: ImageData, model: tf.keras.Model) -> str:
    """Return whether the head is to be solved: "solve" or "keep"; a line says why it is not, where asked for.

    A model that knows the classes of the data already keeps its head.
    """
    if settings.head_init != "solve":
        return "keep"
    if settings.init_from and RunFolder(settings.init_from).class_names() == list(data.class_names):
        return "keep"
    try:
        hold_columns(model, len(keeping.earlier_classes(settings)))
    except UsageError as error:
        LOG.info(f"note: {error}")
        return "keep"
    return "solve"


def _evaluating_s(settings: TrainSettings, profile: Optional[Profile]) -> float:
    """Return the expected seconds of evaluating an image; 0 without a profile."""
    if profile is None:
        return 0.0
    return _EVALUATION * 1e-3 / settings.batch_size * profile.full_ms * profile.forward_share


def _head_stride(settings: TrainSettings, data: ImageData, image_s: float) -> int:
    """Return k such that evaluating the solved head on every k-th image takes 3 % of the time at most.

    `image_s`: expected seconds of evaluating an image.
    """
    if not settings.time or data.val_split is not None:
        return 1
    evaluation_s = data.evaluated_count("test") * image_s
    return max(1, math.ceil(evaluation_s / (_HEAD_SHARE * parse_seconds(settings.time))))


def deadline_of(
    settings: TrainSettings,
    data: ImageData,
    evaluation: Evaluation,
    record: RunRecord,
    image_s: float,
    one_of: int,
    extra_time: Optional[str],
) -> Optional[Deadline]:
    """Return the time that this process may take; None without --time.

    Args:
        settings, data: of the run.
        evaluation: tells what an image takes once it has made an evaluation; `image_s`: until then.
        record: tells what writing the model takes, once it has done so.
        one_of: the solved head is evaluated on one of so many images.
        extra_time: for a resumed run beyond the time it had taken.
    """
    if not settings.time:
        return None
    # Weights that are chosen by a validation part are tested at the end, after the last ones were validated.
    parts = ["test"] if data.val_split is None else ["val", "test"]
    images = [data.evaluated_count(part) for part in parts]

    def reserve_s() -> float:
        evaluation_s = sum(images) * (evaluation.image_s or image_s)
        writing_s = 2 * (record.writing_s or _WRITING_S)  # the last checkpoint, and the model
        return evaluation_s + writing_s + _LEAVING_S + _EXPORT_S * len(settings.export_formats)

    check_s = images[0] * image_s / one_of + _COMPILING_S + _WRITING_S
    return Deadline(
        parse_seconds(settings.time),
        reserve_s,
        parse_seconds(extra_time) if extra_time else 0.0,
        check_s=check_s,
    )
