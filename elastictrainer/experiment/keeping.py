"""Classes and images that a run takes over from the run before it, and stores for the next one."""

from dataclasses import replace
from typing import List, Optional, Tuple

import numpy as np

from elastictrainer.data import kept_images
from elastictrainer.data.image_data import ImageData
from elastictrainer.data.kept_images import KeptImages
from elastictrainer.data.reading import abbreviated
from elastictrainer.data.splits import IndexedSplit, JoinedSplit, labels_in
from elastictrainer.errors import UsageError
from elastictrainer.experiment import earlier_data
from elastictrainer.experiment.options import load
from elastictrainer.experiment.settings import TrainSettings
from elastictrainer.runs.log import LOG
from elastictrainer.runs.run_folder import RunFolder


def _earlier_run(settings: TrainSettings) -> Optional[RunFolder]:
    """Return the run whose classes this one keeps; None where it keeps none."""
    return RunFolder(settings.init_from) if settings.init_from and settings.keep is not None else None


def _earlier_classes(settings: TrainSettings) -> List[str]:
    earlier = _earlier_run(settings)
    return earlier.class_names() if earlier else []


def class_names(settings: TrainSettings, data: ImageData) -> Tuple[str, ...]:
    """Return the classes of a run's head, by label: with --keep first those of the earlier run."""
    known = _earlier_classes(settings)
    return (*known, *(name for name in data.class_names if name not in known))


def earlier_class_count(settings: TrainSettings) -> int:
    """Return how many of the head's classes, the first ones, are kept of the earlier run."""
    return len(_earlier_classes(settings))


def class_weights(data: ImageData) -> List[float]:
    """Return a weight for each label: one over the square root of its number of images.

    So one of a few old images counts more than one of many new ones, but their class counts less. If all
    classes counted alike, five old images would cost the new classes two points, not one (docs/continual.md).
    The mean over the training images is 1; a class without images has the weight 1.
    """
    counts = np.bincount(data.train_split.labels, minlength=len(data.class_names))
    mean = counts.sum() / np.sqrt(counts).sum()
    return [float(mean / np.sqrt(count)) if count else 1.0 for count in counts]


def images_to_keep(
    settings: TrainSettings, run: RunFolder, resume: bool, data: ImageData
) -> Optional[KeptImages]:
    """Return the images that a run keeps: those it takes from the earlier run, and its own; None: none.

    They are labelled by `class_names`, at the size of the new `data`, of which those of age 0 are. A resumed
    run has them in its folder.

    Raises:
        UsageError: the earlier run stored none and its data is not there as it was, or what it stored is
            damaged or of another size.
    """
    if not settings.keep:
        return None
    if resume and run.kept_path.exists():
        return kept_images.read(run.kept_path)
    names = class_names(settings, data)
    own = kept_images.draw(data.train_split, data.class_names, settings.keep, data.image_size, settings.seed)
    earlier = _earlier_run(settings)
    if earlier is None:
        return own.renamed(names)
    old = _earlier_images(earlier, settings.keep, data.image_size).older()
    kept = kept_images.joined([own.renamed(names), old.renamed(names)])
    forgotten = [names[label] for label in np.setdiff1d(np.arange(len(names)), kept.labels)]
    if forgotten:
        LOG.info(f"note: no image is left of {abbreviated(forgotten)}: they will be forgotten")
    return kept


def add_earlier(settings: TrainSettings, data: ImageData, kept: Optional[KeptImages]) -> ImageData:
    """Return the data with what the earlier run adds: classes, images to train and to test on.

    `kept` is the result of `images_to_keep`. UsageError where none can be mixed in: the data is a stream.
    """
    earlier = _earlier_run(settings)
    if earlier is None:
        return data
    if not isinstance(data.train_split, IndexedSplit):
        raise UsageError(
            f"--keep {settings.keep}: {data.name} is read as a stream, and no images can be mixed into that. "
            "Give the images as a folder, a .csv table or .npz arrays."
        )
    names = class_names(settings, data)
    label_of = labels_in(names, data.class_names)
    splits = {part: split.relabelled(label_of) for part, split in data.splits.items()}
    old = None if kept is None else kept.subset(kept.ages > 0)
    if old is not None and len(old.labels):
        splits["train"] = JoinedSplit([splits["train"], old.as_split()])
        LOG.info(f"kept: {len(old.labels)} old images of {len(np.unique(old.labels))} classes are mixed in")
    runs = [earlier, *earlier_data.earlier_runs(earlier)]
    tested = {part: earlier_data.load_earlier_images(runs, part, names) for part in splits if part != "train"}
    old_splits = {part: images.split for part, images in tested.items() if images is not None}
    return replace(data, class_names=names, splits=splits, old_splits=old_splits)


def _earlier_images(run: RunFolder, each: int, size: Tuple[int, int]) -> KeptImages:
    """Return `each` images of every class of the earlier run, or as many as there are, labelled as in that
    run.
    """
    settings = load(TrainSettings, run.config_path)
    stored, names = _stored_images(run, size), tuple(run.class_names())
    if stored is not None and (settings.keep or 0) >= each:
        return stored.limited(each)
    try:
        data = earlier_data.load_unchanged_images(run, "train")
        # The same draw as when the run was trained: it begins with the images that are stored.
        own = kept_images.draw(data.split, data.class_names, each, size, settings.seed).renamed(names)
    except UsageError as error:
        if stored is None:
            raise UsageError(
                f"--keep {each}: {run.path} stored no images (it was trained without --keep), and its data "
                f"cannot be used: {error} Put the data back, or keep the classes without images: --keep 0."
            ) from None
        LOG.info(
            f"note: {run.path} stored {settings.keep} images of each class, fewer than --keep {each}: {error}"
        )
        return stored.limited(each)
    older = [] if stored is None else [stored.subset(stored.ages > 0)]
    return kept_images.joined([own, *older]).limited(each)


def _stored_images(run: RunFolder, size: Tuple[int, int]) -> Optional[KeptImages]:
    """Return the images that a run stored; None: none. UsageError where it is damaged, or of another run."""
    if not run.kept_path.exists():
        return None
    stored = kept_images.read(run.kept_path)
    if stored.images.shape[1:3] != size or set(stored.class_names) != set(run.class_names()):
        sides = "x".join(map(str, stored.images.shape[1:3]))
        raise UsageError(
            f"{run.kept_path} is of another run: {sides} pixels, {len(stored.class_names)} classes. "
            "Put back the file that belongs there, or delete it."
        )
    return stored
