"""What the network sees: images as they are and as augmentation turns them, by class."""

import dataclasses
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import tensorflow as tf

from elastictrainer.experiment import assembly
from elastictrainer.experiment.settings import TrainSettings, load
from elastictrainer.models.zoo import AUGMENTATION
from elastictrainer.plotting.drawing import Drawing, pyplot
from elastictrainer.runs.run_folder import RunFolder

_CLASSES, _COPIES, _SEARCHED = 6, 5, 200


def settings_of(path: str) -> TrainSettings:
    """The settings of a run folder, of a YAML file, or the defaults with `path` as the data set."""
    run = RunFolder(path)
    if run.config_path.exists():
        return load(TrainSettings, run.config_path)
    if Path(path).suffix in (".yaml", ".yml"):
        return load(TrainSettings, path)
    return TrainSettings(dataset=path)


def data(settings: TrainSettings) -> Drawing:
    """A sheet of training images: a row for each of the first classes met, the image itself and then as trained on.

    Args:
        settings: the data set, and the model with its augmentation.
    """
    assembly.configure(settings.seed)
    images = assembly.load_data(settings)
    augment, words = _augmentation(settings, len(images.class_names))
    rows = _one_of_each(images)
    figure, axes = pyplot.subplots(
        len(rows),
        _COPIES + 1,
        figsize=(1.25 * (_COPIES + 1), 1.35 * len(rows) + 0.5),
        squeeze=False,
        layout="constrained",
    )
    drawn: List[Dict[str, Any]] = []
    for line, (label, image) in zip(axes, rows):
        shown = [image, *(augment(image[None])[0].numpy() for _ in range(_COPIES))]
        for place, (square, pixels) in enumerate(zip(line, shown)):
            square.imshow(np.clip(pixels, 0, 255).astype(np.uint8))
            square.set_axis_off()
            what = "as augmented" if place else "as it is"
            drawn.append(
                {
                    "class": images.class_names[label],
                    "shown": what,
                    "mean": float(pixels.mean()),
                    "std": float(pixels.std()),
                }
            )
        line[0].set_title(images.class_names[label][:28], fontsize=7, loc="left")
    height, width = images.image_size
    figure.suptitle(
        f"{Path(images.name).name}, {height}x{width}: as it is (left), as trained on ({words})", fontsize=8
    )
    return Drawing(figure, drawn)


def _augmentation(settings: TrainSettings, classes: int) -> Tuple[Callable[[Any], Any], str]:
    """What the model does to its inputs in training, and in words."""
    model = assembly.make_model(dataclasses.replace(settings, weights="none"), classes)
    layers = [layer for layer in model.layers if isinstance(layer, AUGMENTATION)]

    def augment(pixels: Any) -> Any:
        for layer in layers:
            pixels = layer(pixels, training=True)
        return tf.convert_to_tensor(pixels)

    return augment, ", ".join(type(layer).__name__ for layer in layers) or "no augmentation"


def _one_of_each(images: Any) -> List[Tuple[int, np.ndarray]]:
    """(label, (H, W, 3)) of some classes, in the order of an epoch."""
    found: Dict[int, np.ndarray] = {}
    wanted = min(_CLASSES, len(images.class_names))
    for _, (x, y) in zip(range(_SEARCHED), images.train(0)):
        for pixels, label in zip(x.numpy(), y.numpy()):
            found.setdefault(int(label), pixels)
        if len(found) >= wanted:
            break
    return list(found.items())[:wanted]
