"""The images and the model of a run, made from its settings."""

import dataclasses
from typing import Mapping, Optional, Sequence

import tensorflow as tf

from elastictrainer.data.image_data import ImageData
from elastictrainer.data.inspection import fingerprint, remarks
from elastictrainer.data.splits import PARTS
from elastictrainer.errors import UsageError, abbreviated
from elastictrainer.experiment import assembly, keeping
from elastictrainer.experiment.keeping import KeptImages
from elastictrainer.experiment.labelled_images import require_unchanged
from elastictrainer.experiment.settings import TrainSettings
from elastictrainer.models import user_models
from elastictrainer.registry import MODEL
from elastictrainer.runs import ownership
from elastictrainer.runs.log import LOG
from elastictrainer.runs.run_folder import RunFolder

_ADVICE = "Replace or delete them, or leave them out: --skip-damaged."


@dataclasses.dataclass(frozen=True)
class Inputs:
    """The images and the model of a run.

    Attributes:
        data: the images.
        model: of the run.
        kept: images that the run keeps for the next one; None: there are none.
        about: entries of environment.json: class names, fingerprint of the data, files left out.
    """

    data: ImageData
    model: tf.keras.Model
    kept: Optional[KeptImages]
    about: Mapping[str, object]


def load_inputs(settings: TrainSettings, run: RunFolder, resume: bool) -> Inputs:
    """Load a run's images, make its model, and print what they are.

    Raises:
        UsageError: there is no such data or model; or the data of a resumed run has changed.
    """
    reading = assembly.make_reading(settings, run if resume else None)
    if not resume:  # a resumed run leaves out the same files as at its start
        reading = dataclasses.replace(reading, skip_damaged=settings.skip_damaged, advice=_ADVICE)
    data = assembly.load_data(settings, reading)
    _require_validation(settings, data)
    about_data = fingerprint(data.class_names, data.splits)
    if resume:
        require_unchanged(
            run, data.name, about_data, "Put it back as it was, or train on it as it is in a new run."
        )
    noteworthy = remarks(data.name, data.class_names, data.splits)
    if reading.left_out:
        left_out = abbreviated(reading.left_out)
        noteworthy.append(f"left out: {len(reading.left_out)} image(s) that cannot be read, {left_out}")
    model = _make_model(settings, run, resume, data)
    data = dataclasses.replace(data, image_size=assembly.image_size(settings, model))
    kept = keeping.images_to_keep(settings, run, resume, data)
    data = keeping.add_earlier(
        settings, data.in_memory() if settings.cache_images == "memory" else data, kept
    )
    _announce(settings, data, model, noteworthy, run)
    about = {"class_names": data.class_names, "data": about_data, "damaged": {"left_out": reading.left_out}}
    return Inputs(data, model, kept, about)


def _require_validation(settings: TrainSettings, data: ImageData) -> None:
    """Raise UsageError if a run that is to end early has no validation part to tell when."""
    if settings.early_stopping and data.val_split is None:
        # Alone, it makes the test part where the data has none.
        besides = "--test-split 0.2 with " if settings.validation_split else ""
        raise UsageError(
            f"--early-stopping {settings.early_stopping} needs a validation part, and {data.name} has none: "
            f"{besides}--validation-split 0.1 takes a tenth of every class of the training images."
        )


def _make_model(settings: TrainSettings, run: RunFolder, resume: bool, data: ImageData) -> tf.keras.Model:
    if settings.init_from:
        names = keeping.class_names(settings, data.class_names)
        return user_models.model_of(RunFolder(settings.init_from), names, settings.trust_model)
    if resume and ownership.checkpoints(run.checkpoints_path):
        settings = dataclasses.replace(settings, weights="none")  # the checkpoint has them all
    model = assembly.make_model(settings, len(data.class_names))
    problem = "" if settings.model in MODEL.names else user_models.loading_problem(model)
    if problem:
        LOG.info(
            f"note: the model that this run leaves cannot be loaded by the commands that follow: {problem}"
        )
    return model


def _announce(
    settings: TrainSettings, data: ImageData, model: tf.keras.Model, noteworthy: Sequence[str], run: RunFolder
) -> None:
    *first, last = (f"{split.count} {PARTS[part]}" for part, split in data.splits.items())
    LOG.info(
        f"{settings.model} on {settings.dataset}: {len(data.class_names)} classes, {', '.join(first)} and "
        f"{last} images, {len(model.trainable_weights)} trainable tensors"
    )
    if data.val_split is None:
        chosen = "no validation part: the last weights are kept; test images are never used to choose weights"
    else:
        chosen = (
            "the best weights are chosen by the validation images and tested once at the end (best.keras)"
        )
    for line in (chosen, *noteworthy, f"run: {run.path}"):
        LOG.info(line)
