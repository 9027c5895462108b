"""The data of the runs that a run goes on from, as far as it is still there and as it was."""

from dataclasses import replace
from pathlib import Path
from typing import Iterator, List, Optional, Sequence

import numpy as np

from elastictrainer.data.splits import IndexedSplit, JoinedSplit, labels_in
from elastictrainer.errors import UsageError
from elastictrainer.experiment.labelled_images import LabelledImages, load_run_images
from elastictrainer.experiment.options import load
from elastictrainer.experiment.settings import TrainSettings
from elastictrainer.runs.log import LOG
from elastictrainer.runs.run_folder import RunFolder


def earlier_runs(run: RunFolder) -> Iterator[RunFolder]:
    """Return the runs whose classes `run` kept, the latest first."""
    seen = {run.path.resolve()}
    while run.config_path.exists():
        settings = load(TrainSettings, run.config_path)
        if settings.init_from is None or settings.keep is None:
            return
        run = RunFolder(settings.init_from)
        if run.path.resolve() in seen:  # it was overwritten by its own successor
            return
        seen.add(run.path.resolve())
        yield run


def load_unchanged_images(run: RunFolder, part: str) -> LabelledImages:
    """Return the images of a part of a run's own data; UsageError where they changed, or come as a stream."""
    images = load_run_images(run, part, unchanged=True)
    if not isinstance(images.split, IndexedSplit):
        raise UsageError(f"images of {images.name} can be read in their order alone, not one by one.")
    return images


def mark_old_classes(run: RunFolder, images: LabelledImages) -> LabelledImages:
    """Mark which of the images, of other data than the run's, are of classes that it took over."""
    if images.part == "train" or not list(earlier_runs(run)):
        return images
    own = run.environment().get("data", {}).get("class_names", [])
    is_old = np.array([name not in own for name in images.class_names])
    return replace(images, is_old=is_old[images.split.labels])


def add_earlier_images(run: RunFolder, images: LabelledImages) -> LabelledImages:
    """Add images of the earlier runs' data, marked as old, to test or validation images of a run's own."""
    if images.part == "train":
        return images
    names = run.class_names() or images.class_names
    earlier = load_earlier_images(list(earlier_runs(run)), images.part, names)
    if earlier is None or not isinstance(images.split, IndexedSplit):
        return images
    own = images.split.relabelled(labels_in(names, images.class_names))
    return LabelledImages(
        f"{Path(images.name).name} and {earlier.name}",
        images.part,
        names,
        JoinedSplit([own, earlier.split]),
        np.repeat([False, True], [own.count, earlier.split.count]),
    )


def load_earlier_images(
    runs: Sequence[RunFolder], part: str, class_names: Sequence[str]
) -> Optional[LabelledImages]:
    """Return the images of a part (test, val) of the data of several runs; None where there are none.

    Labels are those of `class_names`. Runs whose data is not there are left out, and a note says so.
    """
    found: List[LabelledImages] = []
    for run in runs:
        try:
            found.append(load_unchanged_images(run, part))
        except UsageError as error:
            if part == "test":
                LOG.info(f"note: no old test images of {run.path}: {error}")
    if not found:
        return None
    names = dict.fromkeys(Path(one.name).name for one in found)
    splits = [one.split.relabelled(labels_in(class_names, one.class_names)) for one in found]
    return LabelledImages(" and ".join(names), part, class_names, JoinedSplit(splits))
