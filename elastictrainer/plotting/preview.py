"""A sheet of training images, as stored and as augmented, by class."""

import dataclasses
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence, Tuple

import numpy as np
import tensorflow as tf

from elastictrainer.data import datasets
from elastictrainer.data.image_data import ImageData
from elastictrainer.data.parts import UNSPLIT, split_dataset
from elastictrainer.data.splits import Split
from elastictrainer.experiment import assembly
from elastictrainer.experiment.options import load
from elastictrainer.experiment.run_settings import load_trusted_settings
from elastictrainer.experiment.settings import TrainSettings
from elastictrainer.models import augmentation
from elastictrainer.plotting.captions import data_name, model_name
from elastictrainer.plotting.drawing import Drawing, pyplot
from elastictrainer.runs.run_folder import RunFolder

_CLASSES = 6  # rows of the sheet
_COPIES = 5  # augmented copies of each image
_SEARCHED = 200  # minibatches in which images of that many classes are looked for


def preview_settings(path: str, trust: bool = False) -> TrainSettings:
    """Load the settings of a run folder or a YAML file; for another path, the defaults with that data set.

    Args:
        path: of a run folder, a YAML file, or a data set.
        trust: a run's settings may name code, whoever wrote them.

    Raises:
        UsageError: the file cannot be read, has an unknown key or value, or a run's names code and is not
            this user's.
    """
    run = RunFolder(path)
    if run.config_path.exists():
        return load_trusted_settings(run, trust)
    if Path(path).suffix in (".yaml", ".yml"):
        return load(TrainSettings, path)
    return TrainSettings(dataset=path)


def data(settings: TrainSettings) -> Drawing:
    """Draw a training image of each of the first classes in the first epoch: as stored, then as augmented.

    Args:
        settings: name the data set and the model, whose augmentation layers are applied.

    Raises:
        UsageError: the data set or the model cannot be made from `settings`.
    """
    assembly.configure(settings.seed)
    names, split = _training_images(settings)
    model = assembly.make_model(dataclasses.replace(settings, weights="none"), len(names))
    size = assembly.image_size(settings, model)
    batch = min(settings.batch_size, split.count)
    images = ImageData(settings.dataset, tuple(names), split, split, batch, size, settings.seed)
    augment, layer_names = _augmentation(model)
    rows = _one_of_each(images)
    figure, axes = pyplot.subplots(
        len(rows),
        _COPIES + 1,
        figsize=(1.25 * (_COPIES + 1), 1.35 * len(rows) + 0.5),
        squeeze=False,
        layout="constrained",
    )
    drawn: List[Dict[str, Any]] = []
    for row_axes, (label, image) in zip(axes, rows):
        versions = [image, *(augment(image[None])[0].numpy() for _ in range(_COPIES))]
        for column, (image_axes, pixels) in enumerate(zip(row_axes, versions)):
            image_axes.imshow(np.clip(pixels, 0, 255).astype(np.uint8))
            image_axes.set_axis_off()
            shown = "as augmented" if column else "as it is"
            drawn.append(
                {
                    "class": images.class_names[label],
                    "shown": shown,
                    "mean": float(pixels.mean()),
                    "std": float(pixels.std()),
                }
            )
        row_axes[0].set_title(images.class_names[label][:28], fontsize=7, loc="left")
    height, width = images.image_size
    figure.suptitle(
        f"Training images of {data_name(images.name)} for {model_name(settings.model)}, {height}x{width}\n"
        f"left: as they are; the others: as trained on ({layer_names})",
        fontsize=9,
    )
    return Drawing(figure, drawn)


def _training_images(settings: TrainSettings) -> Tuple[Sequence[str], Split]:
    """Return class names and training images; all images of data that has no parts, and is given none."""
    reading = dataclasses.replace(assembly.reading(settings), skip_damaged=settings.skip_damaged)
    names, own = datasets.parts_of(settings.dataset, settings.data_dir, reading)
    if "test" not in own and settings.test_split is None and settings.validation_split is None:
        return names, own[UNSPLIT] if UNSPLIT in own else own["train"]
    shares = settings.test_split, settings.validation_split, settings.seed
    return names, split_dataset(settings.dataset, names, own, *shares)["train"]


def _augmentation(model: tf.keras.Model) -> Tuple[Callable[[Any], Any], str]:
    """Return the model's augmentation layers as one function, and their names for the title."""
    layers = augmentation.layers_of(model)

    def augment(pixels: Any) -> Any:
        for layer in layers:
            pixels = layer(pixels, training=True)
        return tf.convert_to_tensor(pixels)

    return augment, ", ".join(type(layer).__name__ for layer in layers) or "no augmentation"


def _one_of_each(images: Any) -> List[Tuple[int, np.ndarray]]:
    """Return [(label, image (H, W, 3))]: the first image of each class, in the order of the first epoch."""
    first_images: Dict[int, np.ndarray] = {}
    wanted = min(_CLASSES, len(images.class_names))
    for _, (x, y) in zip(range(_SEARCHED), images.train(0)):
        for pixels, label in zip(x.numpy(), y.numpy()):
            first_images.setdefault(int(label), pixels)
        if len(first_images) >= wanted:
            break
    return list(first_images.items())[:wanted]
