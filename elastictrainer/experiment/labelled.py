"""Labelled images of a run's data or others: to test a classifier on, or to calibrate one."""

import functools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

import numpy as np
import tensorflow as tf

from elastictrainer.data import datasets, fingerprint, gone
from elastictrainer.data.parts import UNSPLIT, split_dataset
from elastictrainer.data.reading import Reading, abbreviated
from elastictrainer.data.splits import Divisible, stored, unreadable
from elastictrainer.errors import UsageError
from elastictrainer.experiment import assembly
from elastictrainer.experiment.options import load
from elastictrainer.experiment.settings import TrainSettings
from elastictrainer.runs.environment import processors
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
    split: Divisible
    old: Optional[np.ndarray] = None

    @functools.cached_property
    def image_names(self) -> List[str]:
        """Return a name for each image: its file, or its number."""
        files = getattr(self.split, "files", None)
        return [str(k) for k in range(self.split.count)] if files is None else list(map(str, files))

    def __str__(self) -> str:
        words = {"val": "validation", "train": "training"}.get(self.part, self.part)
        return f"{self.split.count} {words + ' ' if words else ''}images of {Path(self.name).name}"


def labelled_of_run(
    run: RunFolder,
    part: Optional[str] = None,
    data_dir: Optional[str] = None,
    image_memory: Optional[str] = None,
) -> Labelled:
    """Return the images of a part of a run's data: "test" (None), "val" or "train".

    Args:
        run: its folder.
        part: of the data.
        data_dir, image_memory: instead of the run's settings of these names; None: as these say.

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
    """Return the images of a part of a data set ("test" if None), or all of them where it has no parts.

    Raises:
        UsageError: there is no such data, or no such part.
    """
    names, parts = datasets.parts_of(name, data_dir, reading)
    return _chosen(name, names, parts, part)


def _chosen(name: str, names: Sequence[str], parts: Dict[str, Divisible], part: Optional[str]) -> Labelled:
    if part is None and UNSPLIT in parts:
        return Labelled(name, "", names, parts[UNSPLIT])
    part = part or "test"
    if part not in parts:
        there = ", ".join(parts) if UNSPLIT not in parts else "no parts: leave out --part to use all images"
        raise UsageError(f"{name} has no part {part!r}; it has {there}.")
    return Labelled(name, part, names, parts[part])


def training_sample(run: RunFolder, size: Tuple[int, int], count: int = 100) -> np.ndarray:
    """Draw training images of a run's own data, the same ones each time: `count`, or as many as there are.

    Args:
        run: its folder.
        size: height and width that the network takes.
        count: of the images.

    Returns:
        (n, H, W, 3) uint8, in their stored order.

    Raises:
        UsageError: the data is not there any more, or has changed.
        RunError: an image cannot be decoded.
    """
    split = labelled_of_run(run, "train").split
    chosen = np.zeros(split.count, bool)
    chosen[np.random.default_rng(run.config()["seed"]).permutation(split.count)[:count]] = True
    few = split.subset(chosen)
    try:
        images = [image.numpy() for image, _ in stored(few, size, processors())]
    except tf.errors.OpError as error:
        raise unreadable(few, error) from None
    return np.rint(images).astype(np.uint8)
