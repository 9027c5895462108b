"""From settings to live objects: random state, images, model, optimizer."""

import contextlib
import dataclasses
import logging
from pathlib import Path
from typing import Mapping, Optional, Tuple

import tensorflow as tf

from elastictrainer.data import datasets
from elastictrainer.data.image_data import ImageData
from elastictrainer.data.inspection import fingerprint, remarks
from elastictrainer.data.splits import PARTS
from elastictrainer.data.user_images import Reading
from elastictrainer.errors import UsageError, abbreviated
from elastictrainer.experiment import run_images
from elastictrainer.experiment.run_images import KeptImages
from elastictrainer.experiment.settings import CommonSettings, TrainSettings, learning_rate
from elastictrainer.models import augmentation, user_models, zoo
from elastictrainer.models.solved_head import SolvableHead
from elastictrainer.profiler.profile import Profile
from elastictrainer.registry import MODEL
from elastictrainer.runs import ownership
from elastictrainer.runs.log import LOG
from elastictrainer.runs.run_folder import Record, RunFolder
from elastictrainer.steps import optimizers
from elastictrainer.steps.keras_compat.layers import compute_in_float32, keep_statistics, keeps_statistics
from elastictrainer.steps.keras_compat.variables import use_random_variables

# Keras' names of formats; "auto" is float32 until another one is chosen.
_POLICIES = {"auto": "float32", "float32": "float32", "bfloat16": "mixed_bfloat16"}
_ADVICE = "Replace or delete them, or leave them out: --skip-damaged."


def configure(seed: int, deterministic: bool = False, precision: str = "float32") -> None:
    """Set the process up, before any layer is made.

    With `deterministic` the same work always gives the same bits. `precision` is what layers compute in;
    their weights are float32 in any case.
    """
    tf.get_logger().setLevel(logging.ERROR)
    use_random_variables()  # only what is in a variable can be put back after the tensors were scored
    tf.keras.utils.set_random_seed(seed)
    tf.keras.mixed_precision.set_global_policy(_POLICIES[precision])
    if deterministic:
        tf.config.experimental.enable_op_determinism()


def count_classes(settings: CommonSettings, dataset_given: bool = True) -> int:
    """Return the number of classes of the data; UsageError where the settings name another.

    Without `dataset_given` the data set is but the default: then the settings' number counts.
    """
    named = settings.dataset
    if settings.classes and not (dataset_given and (named in datasets.TFDS_CLASSES or Path(named).exists())):
        return settings.classes
    found = datasets.count_classes(named, settings.data_dir, Reading(label_column=settings.label_column))
    _require_same_count(settings, found)
    return found


def load_data(settings: CommonSettings, reading: Optional[Reading] = None) -> ImageData:
    """Load the data set, sized for the model."""
    size = settings.image_size or zoo.default_image_size(settings.model)
    data = datasets.load(
        settings.dataset,
        settings.batch_size,
        (size, size),
        seed=settings.seed,
        data_dir=settings.data_dir,
        validation_split=settings.validation_split,
        test_split=settings.test_split,
        reading=reading or Reading(label_column=settings.label_column),
    )
    _require_same_count(settings, len(data.class_names))
    return data


def _require_same_count(settings: CommonSettings, class_count: int) -> None:
    if settings.classes and settings.classes != class_count:
        raise UsageError(
            f"--classes {settings.classes}: {settings.dataset} has {class_count}. Leave --classes out."
        )


def make_model(settings: CommonSettings, class_count: int) -> tf.keras.Model:
    """Make the model with a head for `class_count` classes.

    A head is solved on what the network gives in inference: norms keep the statistics of that, or training
    would end below the head (EfficientNet-Lite1, docs/results.md). Built-in networks are made so.
    """
    model = zoo.create(
        settings.model,
        class_count,
        image_size=settings.image_size,
        weights=settings.weights,
        head_init=settings.head_init,
        augment=settings.augment,
        rotation=settings.rotation,
        flip=settings.flip,
        trust=settings.trust_model,
    )
    if settings.model in MODEL.names or settings.head_init != "solve":
        return model
    with contextlib.suppress(UsageError):  # of a head that cannot be solved
        SolvableHead(model)
        if keep_statistics(model):
            LOG.info(
                "note: batch normalisation keeps its statistics, for which the head is solved; --head-init "
                "keep leaves both as you made them"
            )
    return model


def image_size(settings: CommonSettings, model: tf.keras.Model) -> Tuple[int, int]:
    """Return height and width of images for `model`; UsageError where the settings name another size."""
    size = zoo.input_size(model, settings.image_size or zoo.default_image_size(settings.model))
    if settings.image_size and size != (settings.image_size, settings.image_size):
        raise UsageError(
            f"--image-size {settings.image_size}: {settings.model} takes images of {size[0]}x{size[1]} "
            "pixels. Leave --image-size out."
        )
    return size


def make_optimizer(settings: CommonSettings) -> tf.keras.optimizers.Optimizer:
    """Make the optimizer that the settings ask for; the learning rate is that of `learning_rate`."""
    return optimizers.make(settings.optimizer, learning_rate(settings), settings.weight_decay)


def profile_metadata(
    settings: CommonSettings, model: tf.keras.Model, input_shape: Tuple[int, ...], class_count: int
) -> Record:
    """Return the metadata that a profile must match to be used."""
    own = {} if settings.model in MODEL.names else {"keeps_statistics": keeps_statistics(model)}
    return {
        **own,
        "model": settings.model,
        "input_shape": list(input_shape),
        "batch_size": settings.batch_size,
        "classes": class_count,
        "optimizer": settings.optimizer,
        "folded": settings.fold == "on",
        "augmentation": augmentation.layer_kinds(model),
        "precision": _POLICIES[settings.precision],
    }


def precision_of(profile: Profile) -> str:
    """Return the format that the steps of a profile computed in."""
    names = {policy: name for name, policy in _POLICIES.items() if name != "auto"}
    return names.get(profile.metadata.get("precision", "float32"), "float32")  # another one fits no run


def load_inputs(
    settings: TrainSettings, run: RunFolder, resume: bool
) -> Tuple[ImageData, tf.keras.Model, Optional[KeptImages], Mapping[str, object]]:
    """Load a run's images, make its model, and print what they are.

    Returns:
        The images; the model; the images that the run keeps for the next one, None where there are none; and
        entries of environment.json: class names, fingerprint of the data, files left out.

    Raises:
        UsageError: there is no such data or model; or the data of a resumed run has changed.
    """
    reading = Reading(settings.skip_damaged, advice=_ADVICE, label_column=settings.label_column)
    if resume:
        reading = run_images.reading_again(run, settings)
    data = load_data(settings, reading)
    _require_validation(settings, data)
    about_data = fingerprint(data.class_names, data.splits)
    if resume:
        run_images.require_unchanged(
            run, data.name, about_data, "Put it back as it was, or train on it as it is in a new run."
        )
    noteworthy = remarks(data.name, data.class_names, data.splits)
    if reading.left_out:
        files = abbreviated(reading.left_out)
        noteworthy.append(f"left out: {len(reading.left_out)} image(s) that cannot be read, {files}")
    model = _model(settings, data, run, resume)
    data = dataclasses.replace(data, image_size=image_size(settings, model))
    if settings.cache_images == "memory":
        data = data.in_memory()
    data, kept = run_images.take_over(settings, data, run.kept_path if resume else None)
    *first, last = (f"{split.count} {PARTS[part]}" for part, split in data.splits.items())
    for line in (
        f"{settings.model} on {settings.dataset}: {len(data.class_names)} classes, {', '.join(first)} and "
        f"{last} images, {len(model.trainable_weights)} trainable tensors",
        "no validation part: the last weights are kept; test images are never used to choose weights"
        if data.val_split is None
        else "the best weights are chosen by the validation images and tested once at the end (best.keras)",
        *noteworthy,
        f"run: {run.path}",
    ):
        LOG.info(line)
    about = {"class_names": data.class_names, "data": about_data, "damaged": {"left_out": reading.left_out}}
    return data, model, kept, about


def _require_validation(settings: TrainSettings, data: ImageData) -> None:
    """Raise UsageError if a run that is to end early has no validation part to tell when."""
    if settings.early_stopping and data.val_split is None:
        # Alone, it makes the test part where the data has none.
        besides = "--test-split 0.2 with " if settings.validation_split else ""
        raise UsageError(
            f"--early-stopping {settings.early_stopping} needs a validation part, and {data.name} has none: "
            f"{besides}--validation-split 0.1 takes a tenth of every class of the training images."
        )


def _model(settings: TrainSettings, data: ImageData, run: RunFolder, resume: bool) -> tf.keras.Model:
    """Make the model of a run: the earlier run's, or a new one."""
    if settings.init_from:
        names = run_images.class_names(run_images.earlier_run(settings), data.class_names)
        earlier = RunFolder(settings.init_from)
        model = user_models.model_of(earlier, names, settings.trust_model)
        if earlier.config().get("precision") != settings.precision:  # see `options.inherit`
            compute_in_float32(model)
        if settings.head_init == "solve":
            keep_statistics(model)
        return model
    if resume and ownership.checkpoints(run.checkpoints_path):  # these have all weights
        settings = dataclasses.replace(settings, weights="none")
    model = make_model(settings, len(data.class_names))
    if settings.model in MODEL.names:
        return model
    problem = user_models.loading_problem(model)
    if problem:
        LOG.info(
            f"note: the model that this run leaves cannot be loaded by the commands that follow: {problem}"
        )
    return model
