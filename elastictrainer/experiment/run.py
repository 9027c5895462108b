"""A run of et-train: everything made from its settings, trained, and left in its folder."""

import contextlib
import dataclasses
import functools
import math
import os
import sys
from pathlib import Path
from typing import Any, Dict, Optional, Sequence, Tuple, Union

import tensorflow as tf

from elastictrainer.data import fingerprint, gone
from elastictrainer.data.image_data import ImageData
from elastictrainer.data.kept_images import KeptImages
from elastictrainer.data.reading import Reading, abbreviated
from elastictrainer.data.remarks import remarks
from elastictrainer.errors import DamagedImages, DataError, UnreadableImages, UsageError
from elastictrainer.experiment import assembly, ending, keeping, memory, profiling
from elastictrainer.experiment.labelled import require_unchanged, training_sample
from elastictrainer.experiment.quantities import bytes_of, seconds_of
from elastictrainer.experiment.rates import rate_schedule
from elastictrainer.experiment.settings import TrainSettings
from elastictrainer.experiment.settings_checks import check_together, require_writable
from elastictrainer.models import warm_start
from elastictrainer.models.export import export_run
from elastictrainer.models.solved_head import hold
from elastictrainer.profiler.timings import TensorTimings
from elastictrainer.reuse.settings import ReuseSettings
from elastictrainer.runs import environment, ownership
from elastictrainer.runs.log import printed
from elastictrainer.runs.run_folder import RunFolder
from elastictrainer.selection import schemes
from elastictrainer.steps.compiled_step import exempt_from_collection
from elastictrainer.steps.losses import training_loss
from elastictrainer.training import energy, keras_callbacks, workers
from elastictrainer.training.best_weights import BestWeights
from elastictrainer.training.checkpointing import Checkpointing
from elastictrainer.training.evaluation import Evaluation
from elastictrainer.training.metering import EnergyMetering
from elastictrainer.training.rising_loss import RisingLoss
from elastictrainer.training.run_record import RunRecord
from elastictrainer.training.trainer import Trainer
from elastictrainer.training.workers import Workers

_ADVICE = "Replace or delete them, or leave them out: --skip-damaged."
_HEAD_SHARE = 0.03  # of the time that the solved head may be evaluated in: on a part of the images if need be


def train(
    settings: TrainSettings, run: RunFolder, resume: bool, more: Optional[str] = None
) -> Dict[str, Any]:
    """Train into the folder `run`, alone or as one of several processes; returns the summary."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(printed())
        group = workers.create(settings.strategy)
        if group:
            stack.enter_context(group.explaining_lost_peers())
        try:
            return _train(settings, run, resume, group, more)
        except (DamagedImages, UnreadableImages) as error:
            about = run.environment()
            if about and error.files:  # the run can be resumed when they were replaced or deleted
                noted = Reading(**about.get("damaged", {})).record()
                noted["damaged"] = sorted({*noted["damaged"], *error.files})
                run.write_environment({**about, "damaged": noted})
            raise


def _train(
    settings: TrainSettings, run: RunFolder, resume: bool, group: Optional[Workers], more: Optional[str]
) -> Dict[str, Any]:
    if settings.meter:
        energy.from_log(settings.meter, [])  # a wrong log raises its error now
    schemes.check_name(settings.scheme)
    check_together(settings)
    if settings.reuse_dir and settings.reuse != "off" and not resume:  # which goes on without a cache
        require_writable(Path(settings.reuse_dir), f"--reuse-dir {settings.reuse_dir!r}")
    memory.prepare(settings.memory)
    users = keras_callbacks.create(settings.callback)
    assembly.configure(settings.seed, settings.deterministic, settings.mixed_precision)
    assembly.note_precision(settings)
    reading = assembly.reading(settings, run if resume else None)
    if not resume:  # which leaves out the same files as at its start
        reading = dataclasses.replace(reading, skip_damaged=settings.skip_damaged, advice=_ADVICE)
    data = assembly.load_data(settings, reading)
    if settings.early_stopping and data.val_split is None:
        # Alone, it makes the test part where the data has none.
        besides = "--test-split 0.2 with " if settings.validation_split else ""
        raise UsageError(
            f"--early-stopping {settings.early_stopping} needs a validation part, and {data.name} has none: "
            f"{besides}--validation-split 0.1 takes a tenth of every class of the training images."
        )
    about_data = fingerprint.fingerprint(data)
    if resume:
        require_unchanged(
            run, data.name, about_data, "Put it back as it was, or train on it as it is in a new run."
        )
        data = gone.without(data)
    noteworthy = remarks(data)
    if reading.left_out:
        left_out = abbreviated(reading.left_out)
        noteworthy.append(f"left out: {len(reading.left_out)} image(s) that cannot be read, {left_out}")
    data, model, kept_images = _prepared(settings, run, resume, data, group)
    _announce(settings, data, model, noteworthy, run)
    memory.require_enough(model, settings.batch_size // (group.count if group else 1))
    optimizer = assembly.make_optimizer(settings)
    rates = rate_schedule(settings)
    keras_callbacks.require_supported(users, optimizer, checkpointed=True, rates=rates)
    weights = data.class_weights() if settings.class_weights == "balanced" else None
    if weights is None and settings.init_from and settings.keep:
        weights = keeping.class_weights(data)
    kept = run.profile_path if resume and run.profile_path.exists() else None
    limit = memory.limit(settings.memory)
    timings = _profile(settings, kept, data, model, optimizer, group, limit)
    memory.note_if_short(timings, limit)
    sensor, source = (None, f"log {settings.meter}") if settings.meter else energy.find_sensor()
    metered = sensor or settings.meter
    print(f"energy: {source}" if metered else f"energy is not measured: {source}")

    record = RunRecord(run, seed=settings.seed)
    checkpointing = Checkpointing(run, settings.checkpoint_minutes, resume)
    if limit is not None:  # a forward pass of training fits; one of the usual 32 images may not
        data = dataclasses.replace(data, evaluated=min(data.evaluated, settings.batch_size))
    image_s = ending.evaluating_s(settings, timings)
    one_of = 1
    if settings.time and data.val_split is None:
        evaluation_s = data.evaluated_count("test") * image_s
        one_of = max(1, math.ceil(evaluation_s / (_HEAD_SHARE * seconds_of(settings.time))))
    evaluation = _evaluation(settings, data, run, checkpointing, one_of)
    trainer = Trainer(
        model,
        scheme=settings.scheme,
        timings=timings,
        probe=data.probe,
        workers=group,
        reuse=ReuseSettings(
            settings.reuse,
            settings.reuse_dtype,
            bytes_of(settings.reuse_memory) if settings.reuse_memory else None,
            Path(settings.reuse_dir) if settings.reuse_dir else run.path,
            settings.seed,
        ),
        head=_head(settings, data, model),
        rates=rates,
        deadline=ending.deadline(settings, data, evaluation, record, image_s, one_of, more),
        memory=limit,
        rho=settings.rho,
        interval=settings.interval,
        importance_batches=settings.importance_batches,
        deterministic=settings.deterministic,
    )
    accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")
    trainer.compile(optimizer, training_loss(settings.label_smoothing, weights), metrics=[accuracy])
    rising = RisingLoss(len(data.class_names))
    callbacks = [EnergyMetering(sensor), evaluation, record, rising, *users, checkpointing]
    about = {"class_names": data.class_names, "data": about_data, "damaged": reading.record()}
    _begin(settings, run, resume, timings, about, kept_images)
    exempt_from_collection()
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
    summary: Dict[str, Any] = history.elastic
    _finish(settings, run, summary, group)
    return summary


def _finish(
    settings: TrainSettings, run: RunFolder, summary: Dict[str, Any], group: Optional[Workers]
) -> None:
    """Add the energy that an external meter logged to the summary, and export the model."""
    if settings.meter:
        try:
            joules = energy.from_log(settings.meter, summary["training_intervals"])
            summary.update(energy_joules=joules, energy_source=f"log {settings.meter}")
            run.write_summary(summary)
        except UsageError as error:  # the log is no good; the run itself is fine
            print(f"no energy: {error}", file=sys.stderr)
    if settings.export and not (group and group.rank):
        sample = functools.partial(training_sample, run)
        for path in export_run(run, settings.export.split(","), trust=True, sample=sample):  # just written
            print(f"written: {path}")


def _announce(
    settings: TrainSettings, data: ImageData, model: tf.keras.Model, noteworthy: Sequence[str], run: RunFolder
) -> None:
    words = {"train": "training", "val": "validation", "test": "test"}
    *first, last = (f"{split.count} {words[part]}" for part, split in data.splits.items())
    print(
        f"{settings.model} on {settings.dataset}: {len(data.class_names)} classes, {', '.join(first)} and "
        f"{last} images, {len(model.trainable_weights)} trainable tensors"
    )
    if data.val_split is None:
        print("no validation part: the last weights are kept; test images are never used to choose weights")
    else:
        print("the best weights are chosen by the validation images, and tested once at the end (best.keras)")
    print(*noteworthy, f"run: {run.path}", sep="\n")


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
    if settings.init_from and warm_start.knows(RunFolder(settings.init_from), data.class_names):
        return "keep"
    try:
        hold(model, keeping.old_classes(settings))
    except UsageError as error:
        print(f"note: {error}")
        return "keep"
    return "solve"


def _prepared(
    settings: TrainSettings, run: RunFolder, resume: bool, data: ImageData, group: Optional[Workers]
) -> Tuple[ImageData, tf.keras.Model, Optional[KeptImages]]:
    """Return the images, or this process' share of every minibatch; the model, the same in all processes; and
    the images that are kept.
    """
    if settings.init_from:
        names = keeping.class_names(settings, data)
        model = warm_start.model_of(RunFolder(settings.init_from), names, settings.trust_model)
    else:
        if resume and ownership.checkpoints(run.checkpoints_path):
            settings = dataclasses.replace(settings, weights="none")  # the checkpoint has them all
        model = assembly.make_model(settings, len(data.class_names))
    data = dataclasses.replace(data, image_size=assembly.image_size(settings, model))
    kept = keeping.kept_of(settings, run, resume, data)
    data = keeping.with_old(settings, data.cached(settings.cache), kept)
    if group:
        data = dataclasses.replace(data, part=(group.rank, group.count))
        group.broadcast_variables(model.variables)
        workers.decorrelate(model, group.rank)
    return data, model, kept


def _profile(
    settings: TrainSettings,
    kept: Optional[Path],
    data: ImageData,
    model: tf.keras.Model,
    optimizer: Any,
    group: Optional[Workers],
    limit: Optional[float] = None,
) -> Optional[TensorTimings]:
    """Obtain the profile of one process' work, see `profiling.obtain_profile`; the same for all processes."""
    share = dataclasses.replace(settings, batch_size=settings.batch_size // (group.count if group else 1))
    image_shape = (*data.image_size, model.input_shape[-1])
    metadata = profiling.profile_metadata(share, model, image_shape, len(data.class_names))
    wanted = schemes.create(settings.scheme).selects

    def obtain() -> Optional[TensorTimings]:
        return profiling.obtain_profile(
            settings, model, metadata, lambda: next(data.train(0)), optimizer, wanted, kept, limit
        )

    if group is None:
        return obtain()

    def as_json() -> Any:
        timings = obtain()
        return timings and timings.to_json()

    # One profile for all, or they would select differently.
    received = group.broadcast(as_json)
    return TensorTimings.from_json(received) if received else None


def _begin(
    settings: TrainSettings,
    run: RunFolder,
    resume: bool,
    timings: Optional[TensorTimings],
    about: Dict[str, Any],
    kept: Optional[KeptImages],
) -> None:
    """Write the settings that a run is resumed by, and its environment."""
    if not resume:
        run.begin()
        # From here on it can be resumed. As --config of another run it must not replace this one.
        run.write_config({**dataclasses.asdict(settings), "overwrite": False})
    if kept is not None and not run.kept_path.exists():
        kept.save(run.kept_path)
    if timings is not None and not run.profile_path.exists():
        timings.save(run.profile_path)
    if not run.environment_path.exists():
        started = {"seed": settings.seed, "arguments": sys.argv[1:], "directory": os.getcwd()}
        run.write_environment({**environment.describe(), **started, **about})
