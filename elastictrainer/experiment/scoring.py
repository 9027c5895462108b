"""The measures of `et-evaluate`: a trained classifier on labelled images."""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np
import tensorflow as tf

from elastictrainer.data.splits import Split, decode_in_order, labels_in, read_error
from elastictrainer.errors import UsageError, abbreviated
from elastictrainer.experiment.run_images import LabelledImages
from elastictrainer.models.predictor import Predictor
from elastictrainer.runs import ownership
from elastictrainer.runs.files import write_csv, write_json
from elastictrainer.runs.run_folder import Record

_BATCH = 32
_TOP = 5
_WORST = 3  # classes, and confusions, that are told


def probabilities(
    predictor: Predictor, split: Split, image_size: Optional[int] = None
) -> Iterator[np.ndarray]:
    """Classify the images of `split`, in their order: yields (n, classes) for each minibatch.

    `image_size` is height and width where the classifier takes any (UsageError for another). An image that
    cannot be decoded is a RunError.
    """
    examples = decode_in_order(split, _size(predictor, image_size))
    try:
        for images, _ in examples.batch(_BATCH):
            yield predictor(images.numpy())
    except tf.errors.OpError as error:
        raise read_error(split, error) from None


def _size(predictor: Predictor, asked: Optional[int]) -> Tuple[int, int]:
    height, width = predictor.image_size
    if asked is None and None in (height, width):
        raise UsageError(
            f"{predictor.source} takes images of any size: say with --image-size what it was trained on."
        )
    if asked is not None and (asked < 1 or any(side not in (None, asked) for side in (height, width))):
        takes = f"{height or 'any'}x{width or 'any'}"
        raise UsageError(f"--image-size {asked}: {predictor.source} takes images of {takes} pixels.")
    return height or asked or 0, width or asked or 0


@dataclass(frozen=True)
class Scores:
    """The predictions of a classifier on labelled images, and measures of them."""

    data: LabelledImages
    class_names: Sequence[str]  # of the classifier, by its labels
    labels: np.ndarray  # (n,) int: what the images are, by the classifier's labels
    probabilities: np.ndarray  # (n, classes) float32
    model: str = ""  # the file or folder that it is from

    @property
    def predicted(self) -> np.ndarray:
        return self.probabilities.argmax(axis=1)

    @property
    def accuracy(self) -> float:
        return float((self.predicted == self.labels).mean())

    @property
    def old_and_new(self) -> Dict[str, float]:
        """Return `accuracy_old` and `accuracy_new`, of what was known before and not; empty without both."""
        old = self.data.is_old
        if old is None or old.all() or not old.any():
            return {}
        right = self.predicted == self.labels
        return {"accuracy_old": float(right[old].mean()), "accuracy_new": float(right[~old].mean())}

    @property
    def top_5_accuracy(self) -> Optional[float]:
        """Return the share of images whose class is among the five most probable; None for few classes."""
        from sklearn.metrics import top_k_accuracy_score

        classes = range(len(self.class_names))
        if len(classes) <= _TOP:
            return None
        return float(top_k_accuracy_score(self.labels, self.probabilities, k=_TOP, labels=classes))

    @functools.cached_property
    def confusion(self) -> np.ndarray:
        """Return (classes, classes) int: the images of each class (row) that were taken for each (column)."""
        from sklearn.metrics import confusion_matrix

        return confusion_matrix(self.labels, self.predicted, labels=range(len(self.class_names)))

    @functools.cached_property
    def by_class(self) -> List[Record]:
        """Return for each class its name, precision, recall, F1 (0..1) and number of images."""
        from sklearn.metrics import precision_recall_fscore_support

        columns = precision_recall_fscore_support(
            self.labels, self.predicted, labels=range(len(self.class_names)), zero_division=0
        )
        return [
            {"class": name, "precision": float(p), "recall": float(r), "f1": float(f), "images": int(n)}
            for name, p, r, f, n in zip(self.class_names, *columns)
        ]

    def worst(self, count: int) -> np.ndarray:
        """Return the numbers of the misclassified images, lowest probability of the true class first."""
        own = self.probabilities[np.arange(len(self.labels)), self.labels]
        wrong = np.flatnonzero(self.predicted != self.labels)
        return wrong[np.argsort(own[wrong], kind="stable")][:count]

    def summary(self) -> Record:
        """Return the figures over all classes; macro averages are over the classes that have images."""
        with_images = [row for row in self.by_class if row["images"]]
        macro = {
            f"macro_{k}": float(np.mean([row[k] for row in with_images]))
            for k in ("precision", "recall", "f1")
        }
        return {
            "model": self.model,
            "dataset": self.data.name,
            "part": self.data.part or None,
            "images": len(self.labels),
            "classes": len(self.class_names),
            "accuracy": self.accuracy,
            **self.old_and_new,
            "top_5_accuracy": self.top_5_accuracy,
            **macro,
        }

    def __str__(self) -> str:
        """Return the figures over all classes, and those that did worst, as lines of text."""
        top_5, names = self.top_5_accuracy, self.class_names
        lines = [
            f"{self.model} on {self.data}, {len(names)} classes",
            f"accuracy {100 * self.accuracy:.2f} %"
            + (f", top-5 {100 * top_5:.2f} %" if top_5 is not None else "")
            + f", F1 {self.summary()['macro_f1']:.3f} (mean of the classes)",
        ]
        if self.old_and_new:
            old, new = (100 * self.old_and_new[f"accuracy_{which}"] for which in ("old", "new"))
            lines.append(f"of what the run knew before {old:.2f} %, of what it learned {new:.2f} %")
        classes = sorted((row for row in self.by_class if row["images"]), key=lambda row: row["f1"])
        if classes[0]["f1"] < 1:
            worst = (f"{row['class']} {row['f1']:.3f}" for row in classes[:_WORST] if row["f1"] < 1)
            wrong = self.confusion * (1 - np.eye(len(names), dtype=int))
            pairs = sorted(((wrong[i, j], i, j) for i, j in zip(*wrong.nonzero())), reverse=True)[:_WORST]
            mistaken = (f"{names[i]} for {names[j]} ({count})" for count, i, j in pairs)
            lines += [f"lowest F1: {', '.join(worst)}", f"most often mistaken: {', '.join(mistaken)}"]
        return "\n".join(lines)


def score(predictor: Predictor, data: LabelledImages, image_size: Optional[int] = None) -> Scores:
    """Classify all images of `data`; UsageError where it has classes that the classifier does not know."""
    found = np.concatenate(list(probabilities(predictor, data.split, image_size)))
    names = predictor.names(found.shape[1])
    if predictor.class_names is None and len(data.class_names) == found.shape[1]:
        names = data.class_names
    unknown = [name for name in data.class_names if name not in names]
    if unknown:
        raise UsageError(
            f"{predictor.source} does not know {abbreviated(unknown)} of {data.name}; its classes are "
            f"{abbreviated(list(names))}."
        )
    labels = labels_in(names, data.class_names)[data.split.labels]
    return Scores(data, names, labels, found, str(predictor.source))


def write_tables(scores: Scores, folder: Path) -> List[Path]:
    """Write the figures, the classes, the confusion matrix and every prediction; returns the files."""
    write_json(folder / "summary.json", scores.summary())
    write_csv(folder / "classes.csv", list(scores.by_class[0]), (row.values() for row in scores.by_class))
    names = list(scores.class_names)
    confusion = ((name, *row) for name, row in zip(names, scores.confusion.tolist()))
    write_csv(folder / "confusion.csv", ["class", *names], confusion)
    each = zip(scores.data.image_names, scores.labels, scores.predicted, scores.probabilities)
    predictions = (
        (image, names[label], names[predicted], f"{row[predicted]:.6f}", f"{row[label]:.6f}")
        for image, label, predicted, row in each
    )
    columns = ["image", "class", "predicted", "probability", "probability_of_class"]
    write_csv(folder / "predictions.csv", columns, predictions)
    return [folder / name for name in ("summary.json", "classes.csv", "confusion.csv", "predictions.csv")]


def require_free(folder: Path, overwrite: bool) -> None:
    """UsageError where `folder` is a run's own, or holds an evaluation that is not to be replaced."""
    if ownership.is_marked(folder) or (folder / "config.yaml").exists():
        raise UsageError(
            f"{folder} is a run folder, whose summary.json would be replaced. Choose another --output, such "
            f"as {folder / 'evaluation'}."
        )
    existing = [folder / name for name in ownership.EVALUATION if (folder / name).exists()]
    if existing and not overwrite:
        raise UsageError(
            f"{existing[0]} exists. Choose another --output, or allow it to be replaced (--overwrite)."
        )
