"""A run of et-train: everything made from its settings, trained, and left in its folder."""

import contextlib
import dataclasses
import os
import sys
from pathlib import Path
from typing import Any, Dict, Optional, Union

import tensorflow as tf

from elastictrainer.cache.settings import CacheSettings
from elastictrainer.data.image_data import ImageData
from elastictrainer.errors import DamagedImages, DataError, UnreadableImages, UsageError
from elastictrainer.experiment import assembly, ending, keeping, memory, profiling
from elastictrainer.experiment.exporting import export_run
from elastictrainer.experiment.inputs import Inputs, load_inputs
from elastictrainer.experiment.quantities import parse_bytes
from elastictrainer.experiment.rates import rate_schedule
from elastictrainer.experiment.settings import TrainSettings
from elastictrainer.experiment.settings_checks import check_together, require_writable
from elastictrainer.models.solved_head import hold_columns
from elastictrainer.profiler.profile import Profile
from elastictrainer.runs import environment, resident
from elastictrainer.runs.log import printed
from elastictrainer.runs.run_folder import RunFolder
from elastictrainer.selection import schemes
from elastictrainer.steps.losses import training_loss
from elastictrainer.training import energy, keras_callbacks
from elastictrainer.training.best_weights import BestWeights
from elastictrainer.training.checkpointing import Checkpointing
from elastictrainer.training.evaluation import Evaluation
from elastictrainer.training.memory_limit import note_shortage
from elastictrainer.training.memory_needs import MemoryRequest
from elastictrainer.training.metering import EnergyMetering
from elastictrainer.training.rising_loss import RisingLoss
from elastictrainer.training.run_record import RunRecord
from elastictrainer.training.trainer import Trainer


def train(
    settings: TrainSettings, run: RunFolder, resume: bool, extra_time: Optional[str] = None
) -> Dict[str, Any]:
    """Train into the folder `run`; returns the summary."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(printed())
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
    check_together(settings)
    # A resumed run goes on without a cache where the folder is gone.
    if settings.activation_cache_dir and settings.activation_cache != "off" and not resume:
        require_writable(
            Path(settings.activation_cache_dir), f"--activation-cache-dir {settings.activation_cache_dir!r}"
        )
    if settings.memory:  # before the process' first tensor
        resident.use_system_allocator()
    users = keras_callbacks.create(settings.callback)
    assembly.configure(settings.seed, settings.deterministic, settings.mixed_precision)
    inputs = load_inputs(settings, run, resume)
    data, model = inputs.data, inputs.model
    memory.require_enough(model, settings.batch_size)
    optimizer = assembly.make_optimizer(settings)
    rates = rate_schedule(settings)
    keras_callbacks.require_supported(users, optimizer, checkpointed=True, rates=rates)
    scheme, head = schemes.create(settings.scheme), _head(settings, data, model)
    if not scheme.trains and head != "solve":
        raise UsageError(
            f"--scheme {settings.scheme} solves the head, which is kept here: the model knows these classes "
            "already, or its head cannot be solved. Take another scheme."
        )
    limit = memory.limit(settings.memory)
    checkpointing = Checkpointing(run, settings.checkpoint_minutes, resume)
    solves = head == "solve" and not checkpointing.resumes  # what has trained has its head
    request = None if limit is None else MemoryRequest(limit, scheme, solves)
    profile = _profile(settings, run, resume, inputs, optimizer, scheme.selects, request)
    if limit is None:
        note_shortage(profile)
    sensor, source = energy.find_sensor()
    print(f"energy: {source}" if sensor else f"energy is not measured: {source}")

    record = RunRecord(run, seed=settings.seed)
    if limit is not None:  # a forward pass of training fits; one of the usual 32 images may not
        data = dataclasses.replace(
            data, evaluation_batch_size=min(data.evaluation_batch_size, settings.batch_size)
        )
    image_s = ending.evaluating_s(settings, profile)
    one_of = ending.head_stride(settings, data, image_s)
    evaluation = _evaluation(settings, data, run, checkpointing, one_of)
    deadline = ending.deadline(settings, data, evaluation, record, image_s, one_of, extra_time)
    chosen = settings
    if limit is not None and profile is None and scheme.selects:
        chosen, limit = dataclasses.replace(settings, scheme="head-alone"), None
    trainer = _trainer(
        chosen,
        run,
        data,
        model,
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
            print(f"written: {path}")
    summary: Dict[str, Any] = history.elastic
    return summary


def _trainer(
    settings: TrainSettings, run: RunFolder, data: ImageData, model: tf.keras.Model, **made: Any
) -> Trainer:
    """Return the trainer of a run; `made` are arguments of `Trainer` that the settings do not have."""
    return Trainer(
        model,
        scheme=settings.scheme,
        probe=data.probe,
        activation_cache=CacheSettings(
            settings.activation_cache,
            settings.activation_cache_dtype,
            parse_bytes(settings.activation_cache_memory) if settings.activation_cache_memory else None,
            Path(settings.activation_cache_dir) if settings.activation_cache_dir else run.path,
            settings.seed,
        ),
        rho=settings.rho,
        interval=settings.interval,
        importance_batches=settings.importance_batches,
        deterministic=settings.deterministic,
        **made,
    )


def _loss(settings: TrainSettings, data: ImageData) -> Any:
    """Return the loss to train with."""
    weights = data.class_weights() if settings.class_weights == "balanced" else None
    if weights is None and settings.init_from and settings.keep:
        weights = keeping.class_weights(data)
    return training_loss(settings.label_smoothing, weights)


def _evaluation(
    settings: TrainSettings, data: ImageData, run: RunFolder, checkpointing: Checkpointing, one_of: int
) -> Union[Evaluation, BestWeights]:
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
        print(f"note: {error}")
        return "keep"
    return "solve"


def _profile(
    settings: TrainSettings,
    run: RunFolder,
    resume: bool,
    inputs: Inputs,
    optimizer: Any,
    wanted: bool,
    request: Optional[MemoryRequest],
) -> Optional[Profile]:
    """Obtain the profile, see `profiling.obtain_profile`."""
    data, model = inputs.data, inputs.model
    image_shape = (*data.image_size, model.input_shape[-1])
    metadata = profiling.profile_metadata(settings, model, image_shape, len(data.class_names))

    return profiling.obtain_profile(
        settings,
        model,
        metadata,
        lambda: next(data.train(0)),
        optimizer,
        wanted,
        run.profile_path if resume and run.profile_path.exists() else None,
        request,
    )


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
