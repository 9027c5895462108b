"""The tables that `et-evaluate` leaves in a folder."""

from pathlib import Path
from typing import List

from elastictrainer.errors import UsageError
from elastictrainer.experiment.scoring import Scores
from elastictrainer.runs import ownership
from elastictrainer.runs.files import write_csv, write_json


def write(scores: Scores, folder: Path) -> List[Path]:
    """Write the figures, the classes, the confusion matrix and every prediction; returns the files."""
    write_json(folder / "summary.json", scores.summary())
    write_csv(folder / "classes.csv", list(scores.by_class[0]), (row.values() for row in scores.by_class))
    names = list(scores.class_names)
    confusion = ((name, *row) for name, row in zip(names, scores.confusion.tolist()))
    write_csv(folder / "confusion.csv", ["class", *names], confusion)
    predictions = (
        (image, names[label], names[said], f"{row[said]:.6f}", f"{row[label]:.6f}")
        for image, label, said, row in zip(
            scores.data.image_names, scores.labels, scores.predicted, scores.probabilities
        )
    )
    columns = ["image", "class", "predicted", "probability", "probability_of_class"]
    write_csv(folder / "predictions.csv", columns, predictions)
    return [folder / name for name in ("summary.json", "classes.csv", "confusion.csv", "predictions.csv")]


def require_free(folder: Path, overwrite: bool) -> None:
    """Raise UsageError if `folder` is a run's own, or holds an evaluation that is not to be replaced."""
    if ownership.is_marked(folder) or (folder / "config.yaml").exists():
        raise UsageError(
            f"{folder} is a run folder, whose summary.json would be replaced. Choose another --output, such "
            f"as {folder / 'evaluation'}."
        )
    there = [folder / name for name in ownership.EVALUATION if (folder / name).exists()]
    if there and not overwrite:
        raise UsageError(
            f"{there[0]} exists. Choose another --output, or allow it to be replaced (--overwrite)."
        )
