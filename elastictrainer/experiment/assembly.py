"""From settings to live objects: random state, data, model, optimizer."""

import logging
from pathlib import Path
from typing import Any, Optional, Tuple

import tensorflow as tf

from elastictrainer.data import datasets
from elastictrainer.data.image_data import ImageData
from elastictrainer.data.user_images import Reading
from elastictrainer.errors import UsageError
from elastictrainer.experiment.settings import CommonSettings, learning_rate
from elastictrainer.models import zoo
from elastictrainer.runs.run_folder import RunFolder
from elastictrainer.steps import optimizers
from elastictrainer.steps.keras_compat.variables import use_random_variables


def configure(seed: int, deterministic: bool = False, mixed_precision: bool = False) -> None:
    """Set the process up, before any layer is made.

    With `deterministic` the same work always gives the same bits. Layers compute in bfloat16 with
    `mixed_precision`; their weights are float32 in any case.
    """
    tf.get_logger().setLevel(logging.ERROR)
    use_random_variables()  # only what is in a variable can be put back after the tensors were scored
    tf.keras.utils.set_random_seed(seed)
    tf.keras.mixed_precision.set_global_policy("mixed_bfloat16" if mixed_precision else "float32")
    if deterministic:
        tf.config.experimental.enable_op_determinism()


def count_classes(settings: CommonSettings, dataset_given: bool = True) -> int:
    """Return the number of classes of the data; UsageError where the settings name another.

    Without `dataset_given` the data set is but the default: then the settings' number counts.
    """
    named = settings.dataset
    if settings.classes and not (dataset_given and (named in datasets.TFDS_CLASSES or Path(named).exists())):
        return settings.classes
    found = datasets.count_classes(named, settings.data_dir, make_reading(settings))
    _require_same_count(settings, found)
    return found


def make_reading(settings: CommonSettings, run: Optional[RunFolder] = None) -> Reading:
    """Return how a data set is read: as the settings and as `run` noted, which is resumed or tested."""
    noted = run.environment().get("damaged", {}) if run else {}
    return Reading(label_column=settings.label_column, left_out=noted.get("left_out", []))


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
        reading=reading or make_reading(settings),
    )
    _require_same_count(settings, len(data.class_names))
    return data


def _require_same_count(settings: CommonSettings, class_count: int) -> None:
    if settings.classes and settings.classes != class_count:
        raise UsageError(
            f"--classes {settings.classes}: {settings.dataset} has {class_count}. Leave --classes out."
        )


def make_model(settings: CommonSettings, class_count: int) -> tf.keras.Model:
    """Make the model with a head for `class_count` classes."""
    return zoo.create(
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


def image_size(settings: CommonSettings, model: tf.keras.Model) -> Tuple[int, int]:
    """Return height and width of images for `model`; UsageError where the settings name another size."""
    size = zoo.input_size(model, settings.image_size or zoo.default_image_size(settings.model))
    if settings.image_size and size != (settings.image_size, settings.image_size):
        raise UsageError(
            f"--image-size {settings.image_size}: {settings.model} takes images of {size[0]}x{size[1]} "
            "pixels. Leave --image-size out."
        )
    return size


def make_optimizer(settings: CommonSettings) -> Any:
    """Make the optimizer that the settings ask for; the learning rate is that of `learning_rate`."""
    return optimizers.make(settings.optimizer, learning_rate(settings), settings.weight_decay)
