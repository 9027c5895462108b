"""Labelled images that a trained classifier is to be tested on."""

import functools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Dict, List, Optional, Sequence

import numpy as np

from elastictrainer.data import datasets, fingerprint, gone
from elastictrainer.data.parts import UNSPLIT, split_dataset
from elastictrainer.data.reading import Reading, abbreviated
from elastictrainer.data.splits import Split
from elastictrainer.errors import UsageError
from elastictrainer.experiment import assembly
from elastictrainer.experiment.options import load
from elastictrainer.experiment.settings import TrainSettings
from elastictrainer.runs.run_folder import RunFolder


@dataclass(frozen=True)
class Labelled:
    """Labelled images of a part of a data set.

    Attributes:
        name: of the data set.
        part: test, val or train; empty where the data has no parts.
        class_names: by label.
        split: the images.
        old: (n,) bool, which of them a run knew before its own data; None: it knew none, or it is not asked.
    """

    name: str
    part: str
    class_names: Sequence[str]
    split: Split
    old: Optional[np.ndarray] = None

    @functools.cached_property
    def image_names(self) -> List[str]:
        """Return a name for each image: its file, or its number."""
        return [self.split.name_of(number) for number in range(self.split.count)]

    def __str__(self) -> str:
        words = {"val": "validation", "train": "training"}.get(self.part, self.part)
        return f"{self.split.count} {words + ' ' if words else ''}images of {Path(self.name).name}"


def labelled_of_run(
    run: RunFolder,
    part: Optional[str] = None,
    data_dir: Optional[str] = None,
    image_memory: Optional[str] = None,
) -> Labelled:
    """Return the images that a run set aside.

    Args:
        run: its folder.
        part: "test" (None), "val" or "train".
        data_dir: folder of the collection's data now; None: as before.
        image_memory: memory for decoding an image, such as 1GB; None: the run's setting.

    Raises:
        UsageError: the data is not there any more, has no such part, or is other data than what the part was
            set apart of: what would be set apart now may have been trained on.
    """
    settings = load(TrainSettings, run.config_path)
    if image_memory is not None:
        settings.image_memory = image_memory
    try:
        reading = assembly.reading(settings, run)
        names, own = datasets.parts_of(settings.dataset, data_dir or settings.data_dir, reading)
    except UsageError as error:
        started_in = run.environment().get("directory")
        raise UsageError(
            f"{error} The run was started in {started_in}; go there, or put its data back. "
            "et-evaluate takes other data, too: --dataset."
        ) from None
    splits = settings.test_split, settings.validation_split, settings.seed
    parts = split_dataset(settings.dataset, names, own, *splits)
    chosen = _chosen(settings.dataset, names, parts, part)
    before = run.environment().get("data", {})
    apart = {name: split for name, split in parts.items() if split is not own.get(name)}
    if before and chosen.part in apart:
        was = {name: about for name, about in before.items() if name in ("class_names", *apart)}
        found = fingerprint.changes(was, fingerprint.of_splits(names, apart), bool(reading.damaged))
        if found:
            raise UsageError(
                f"{chosen.name} is not what {run.path} was trained on: {abbreviated(found)}. Put it back as "
                "it was, or name images to test on with --dataset."
            )
    return replace(chosen, split=gone.left(chosen.split))


def labelled(
    name: str,
    part: Optional[str] = None,
    data_dir: Optional[str] = None,
    reading: Optional[Reading] = None,
) -> Labelled:
    """Return the images of a data set; all of them where it has no parts.

    Args:
        name, data_dir, reading: of the data set, see `datasets.load`.
        part: "test" (None: where there are parts), "val" or "train".

    Raises:
        UsageError: there is no such data, or no such part.
    """
    names, parts = datasets.parts_of(name, data_dir, reading)
    return _chosen(name, names, parts, part)


def _chosen(name: str, names: Sequence[str], parts: Dict[str, Split], part: Optional[str]) -> Labelled:
    if part is None and UNSPLIT in parts:
        return Labelled(name, "", names, parts[UNSPLIT])
    part = part or "test"
    if part not in parts:
        there = ", ".join(parts) if UNSPLIT not in parts else "no parts: leave out --part to use all images"
        raise UsageError(f"{name} has no part {part!r}; it has {there}.")
    return Labelled(name, part, names, parts[part])
