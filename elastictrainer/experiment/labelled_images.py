"""Labelled images of a run's data or others: to test a classifier on, or to calibrate one."""

import functools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterable, List, Optional, Sequence

import numpy as np

from elastictrainer.data import datasets, inspection
from elastictrainer.data.splits import PARTS, UNSPLIT, Split, split_dataset
from elastictrainer.data.user_images import Reading
from elastictrainer.errors import UsageError, abbreviated
from elastictrainer.experiment import assembly
from elastictrainer.experiment.options import load
from elastictrainer.experiment.settings import TrainSettings
from elastictrainer.runs.log import LOG
from elastictrainer.runs.run_folder import RunFolder


@dataclass(frozen=True)
class LabelledImages:
    """Labelled images of a part of a data set.

    Attributes:
        name: of the data set.
        part: test, val or train; empty where the data has no parts.
        class_names: by label.
        split: the images.
        is_old: (n,) bool, which of them a run knew before its own data; None: none, or it is not asked.
    """

    name: str
    part: str
    class_names: Sequence[str]
    split: Split
    is_old: Optional[np.ndarray] = None

    @functools.cached_property
    def image_names(self) -> List[str]:
        """Return a name for each image: its file, or its number."""
        return [self.split.name_of(number) for number in range(self.split.count)]

    def __str__(self) -> str:
        word = f"{PARTS[self.part]} " if self.part else ""
        return f"{self.split.count} {word}images of {Path(self.name).name}"


def require_unchanged(
    run: RunFolder, name: str, now: inspection.Fingerprint, advice: str, parts: Optional[Iterable[str]] = None
) -> None:
    """Raise UsageError if the data of a run changed since its start.

    Args:
        run: its folder; where it was killed before it had begun, nothing is known.
        name, now: the data's name, and its fingerprint, see `inspection.fingerprint`.
        advice: how to go on, as a sentence.
        parts: those compared; None: all.
    """
    about = run.environment()
    if "data" not in about:
        return
    was = {key: value for key, value in about["data"].items() if not parts or key in ("class_names", *parts)}
    damaged = about.get("damaged", {}).get("damaged", [])
    found = inspection.changes(was, now, sizes_may_differ=bool(damaged))
    gone = [file for file in damaged if not os.path.exists(file)]
    if found and gone:
        found.insert(0, f"{abbreviated(gone)} is gone: put a picture of its class there, under its name")
    if found:
        raise UsageError(f"{name} is not what {run.path} was trained on: {abbreviated(found)}. {advice}")


def load_run_images(
    run: RunFolder, part: Optional[str] = None, data_dir: Optional[str] = None, unchanged: bool = False
) -> LabelledImages:
    """Return the images of a part of a run's data: "test" (None), "val" or "train".

    With `unchanged` they must be what they were. What was set apart by chance must be in any case: what would
    be set apart now may have been trained on. `data_dir` replaces the run's setting.

    Raises:
        UsageError: the data is not there any more, has no such part, or is other data.
    """
    settings = load(TrainSettings, run.config_path)
    try:
        reading = assembly.make_reading(settings, run)
        names, own = datasets.load_parts(settings.dataset, data_dir or settings.data_dir, reading)
    except UsageError as error:
        started_in = run.environment().get("directory")
        raise UsageError(
            f"{error} The run was started in {started_in}; go there, or put its data back. "
            "et-evaluate takes other data, too: --dataset."
        ) from None
    parts = split_dataset(
        settings.dataset,
        names,
        own,
        test_split=settings.test_split,
        validation_split=settings.validation_split,
        seed=settings.seed,
    )
    images = _part_of_data(settings.dataset, names, parts, part)
    drawn = {name: split for name, split in parts.items() if split is not own.get(name)}
    compared = drawn if images.part in drawn else {images.part: images.split} if unchanged else {}
    if compared:
        now = inspection.fingerprint(names, compared)
        other = "" if unchanged else ", or name images to test on with --dataset"
        require_unchanged(run, images.name, now, f"Put it back as it was{other}.", compared)
    return images


def load_images(
    name: str, part: Optional[str] = None, data_dir: Optional[str] = None, reading: Optional[Reading] = None
) -> LabelledImages:
    """Return the images of a part of a data set ("test" if None), or all of them where it has no parts."""
    names, parts = datasets.load_parts(name, data_dir, reading)
    not_used = inspection.unused(name, parts.values())
    if not_used:
        LOG.info(not_used)
    return _part_of_data(name, names, parts, part)


def _part_of_data(
    name: str, names: Sequence[str], parts: Dict[str, Split], part: Optional[str]
) -> LabelledImages:
    if part is None and UNSPLIT in parts:
        return LabelledImages(name, "", names, parts[UNSPLIT])
    part = part or "test"
    if part not in parts:
        available = (
            ", ".join(parts) if UNSPLIT not in parts else "no parts: leave out --part to use all images"
        )
        raise UsageError(f"{name} has no part {part!r}; it has {available}.")
    return LabelledImages(name, part, names, parts[part])
