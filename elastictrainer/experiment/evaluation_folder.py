"""The tables that `et-evaluate` leaves in a folder."""

import csv
from pathlib import Path
from typing import Any, Iterable, List, Sequence

from elastictrainer.errors import UsageError
from elastictrainer.experiment.scoring import Scores
from elastictrainer.runs import ownership
from elastictrainer.runs.files import write_json, written_beside


def write(scores: Scores, folder: Path) -> List[Path]:
    """Write the figures, the classes, the confusion matrix and every prediction; returns the files."""
    write_json(folder / "summary.json", scores.summary())
    _write_csv(folder / "classes.csv", list(scores.by_class[0]), (row.values() for row in scores.by_class))
    names = list(scores.class_names)
    confusion = ((name, *row) for name, row in zip(names, scores.confusion.tolist()))
    _write_csv(folder / "confusion.csv", ["class", *names], confusion)
    predictions = (
        (image, names[label], names[said], f"{row[said]:.6f}", f"{row[label]:.6f}")
        for image, label, said, row in zip(
            scores.data.image_names, scores.labels, scores.predicted, scores.probabilities
        )
    )
    columns = ["image", "class", "predicted", "probability", "probability_of_class"]
    _write_csv(folder / "predictions.csv", columns, predictions)
    return [folder / name for name in ("summary.json", "classes.csv", "confusion.csv", "predictions.csv")]


def _write_csv(path: Path, header: Sequence[str], rows: Iterable[Iterable[Any]]) -> None:
    with written_beside(path) as beside, open(beside, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)


def require_free(folder: Path, overwrite: bool) -> None:
    """UsageError where `folder` is a run's own, or holds an evaluation that is not to be replaced."""
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
