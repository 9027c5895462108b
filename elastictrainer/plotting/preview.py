"""A sheet of training images, as stored and as augmented, by class."""

import dataclasses
from pathlib import Path
from typing import Dict, List, Sequence, Tuple

import numpy as np
import tensorflow as tf

from elastictrainer.data import datasets
from elastictrainer.data.splits import UNSPLIT, Split, decode_all, split_dataset
from elastictrainer.data.user_images import Reading
from elastictrainer.experiment import assembly
from elastictrainer.experiment.options import load, load_trusted
from elastictrainer.experiment.settings import TrainSettings
from elastictrainer.models import augmentation
from elastictrainer.plotting.drawing import Drawing, data_name, model_name, pyplot
from elastictrainer.runs.run_folder import RunFolder

_CLASSES = 6  # rows of the sheet
_COPIES = 5  # augmented copies of each image


def preview_settings(path: str, trust: bool = False) -> TrainSettings:
    """Load the settings of a run folder or a YAML file; for another path, the defaults with that data set.

    With `trust` a run's settings may name code, whoever wrote them.
    """
    run = RunFolder(path)
    if run.config_path.exists():
        return load_trusted(run, trust)
    if Path(path).suffix in (".yaml", ".yml"):
        return load(TrainSettings, path)
    return TrainSettings(dataset=path)


def data(settings: TrainSettings) -> Drawing:
    """Draw a training image of each of the first classes as stored, then as the model augments it.

    Where it augments nothing, draw more images of each class.
    """
    assembly.configure(settings.seed)
    names, split = _training_images(settings)
    model = assembly.make_model(dataclasses.replace(settings, weights="none"), len(names))
    size = assembly.image_size(settings, model)
    layers = augmentation.find_layers(model)
    labels = np.unique(split.labels)[:_CLASSES]
    columns, size_inches = _COPIES + 1, (1.25 * (_COPIES + 1), 1.35 * len(labels) + 0.5)
    figure, axes = pyplot.subplots(len(labels), columns, figsize=size_inches, squeeze=False)
    drawn: List[Dict[str, object]] = []
    for row, label in zip(axes, labels):
        members = np.flatnonzero(split.labels == label)[: 1 if layers else columns]
        images = decode_all(split.subset(np.isin(np.arange(split.count), members)), size)
        for column, cell in enumerate(row):
            cell.set_axis_off()
            if not layers and column >= len(images):
                continue
            pixels = tf.constant(images[0 if layers else column][None], tf.float32)
            for layer in layers if column else ():
                pixels = layer(pixels, training=True)
            shown = np.clip(np.asarray(pixels)[0], 0, 255)
            cell.imshow(shown.astype(np.uint8))
            how = "as augmented" if layers and column else "as it is"
            drawn.append({"class": names[label], "shown": how, "mean": float(shown.mean())})
        row[0].set_title(names[label][:28], fontsize=7, loc="left")
    layer_names = ", ".join(type(layer).__name__ for layer in layers)
    how = (
        f"left: as they are; the others: as trained on ({layer_names})"
        if layers
        else "as trained on: nothing is augmented"
    )
    figure.suptitle(
        f"Training images of {data_name(settings.dataset)} for {model_name(settings.model)}, "
        f"{size[0]}x{size[1]}\n{how}"
    )
    return Drawing(figure, drawn)


def _training_images(settings: TrainSettings) -> Tuple[Sequence[str], Split]:
    """Return class names and training images; all images of data that has no parts, and is given none."""
    reading = Reading(settings.skip_damaged, label_column=settings.label_column)
    names, own = datasets.load_parts(settings.dataset, settings.data_dir, reading)
    if "test" not in own and settings.test_split is None and settings.validation_split is None:
        return names, own[UNSPLIT] if UNSPLIT in own else own["train"]
    shares = settings.test_split, settings.validation_split, settings.seed
    return names, split_dataset(settings.dataset, names, own, *shares)["train"]
