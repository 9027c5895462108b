"""What a run takes over from the runs before it, classes and images, and keeps for the next one."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np
from PIL import Image

from elastictrainer.data.image_data import ImageData
from elastictrainer.data.pictures import Size
from elastictrainer.data.splits import IndexedSplit, JoinedSplit, Split, decode_all, labels_in
from elastictrainer.data.user_images import FileSplit, Reading
from elastictrainer.errors import UsageError, abbreviated
from elastictrainer.experiment.labelled_images import LabelledImages, load_run_images
from elastictrainer.experiment.options import load
from elastictrainer.experiment.settings import TrainSettings
from elastictrainer.runs.files import atomic_write
from elastictrainer.runs.log import LOG
from elastictrainer.runs.run_folder import RunFolder

_DAMAGED = "Put it back from a copy, or delete it."


def earlier_classes(settings: TrainSettings) -> List[str]:
    """Return the classes that a run takes over; none without --keep."""
    earlier = _earlier_run(settings)
    return earlier.class_names() if earlier else []


def class_names(settings: TrainSettings, own: Sequence[str]) -> Tuple[str, ...]:
    """Return the classes of a run's head, by label: those of the earlier run, and its `own` that are new."""
    return tuple(dict.fromkeys([*earlier_classes(settings), *own]))


def class_weights(data: ImageData) -> List[float]:
    """Return a weight for each label: one over the square root of its number of images.

    So one of a few old images counts more than one of many new ones, but their class counts less. If all
    classes counted alike, five old images would cost the new classes two points, not one (docs/continual.md).
    The mean over the training images is 1; a class without images has the weight 1.
    """
    counts = np.bincount(data.train_split.labels, minlength=len(data.class_names))
    mean = counts.sum() / np.sqrt(counts).sum()
    return [float(mean / np.sqrt(count)) if count else 1.0 for count in counts]


@dataclass(frozen=True)
class KeptImages:
    """Images that a run keeps as files.

    Attributes:
        parts: images and their class names by label: "new", of the run's own data, and "old", of the earlier
            run, where there is one: these train with the others.
        size: height and width of the files.
    """

    parts: Mapping[str, Tuple[Split, Sequence[str]]]
    size: Size

    def save(self, folder: Path) -> None:
        """Write all into `folder`/CLASS/, completely or not at all; DataError where one cannot be decoded."""
        with atomic_write(folder) as unfinished:
            unfinished.mkdir()
            for age, (split, names) in self.parts.items():
                numbers = [0] * len(names)
                for pixels, label in zip(decode_all(split, self.size), split.labels):
                    place = unfinished / _folder_name(names[label])
                    place.mkdir(exist_ok=True)
                    Image.fromarray(pixels).save(place / f"{age}-{numbers[label]:05d}.png")
                    numbers[label] += 1


def images_to_keep(
    settings: TrainSettings, run: RunFolder, resume: bool, data: ImageData
) -> Optional[KeptImages]:
    """Return the images that a run keeps, some of each class; None without --keep.

    UsageError where the earlier run kept none and its data is not there as it was, or one is damaged.
    """
    if not settings.keep:
        return None
    names, earlier = class_names(settings, data.class_names), _earlier_run(settings)
    new = data.train_split.subset(_draw(data.train_split, settings.keep, settings.seed))
    parts: Dict[str, Tuple[Split, Sequence[str]]] = {"new": (new, data.class_names)}
    if earlier is not None:
        is_begun = resume and run.kept_path.is_dir()
        old = (_read(run.kept_path, names, "old-*"), names) if is_begun else _images_of(earlier, settings)
        parts["old"] = old
        left = {*data.class_names, *(old[1][label] for label in old[0].labels)}
        forgotten = [name for name in names if name not in left]
        if forgotten:
            LOG.info(f"note: no image is left of {abbreviated(forgotten)}: they will be forgotten")
    return KeptImages(parts, data.image_size)


def add_earlier(settings: TrainSettings, data: ImageData, kept: Optional[KeptImages]) -> ImageData:
    """Return the data with what the earlier run adds: classes, images to train and to test on.

    UsageError where none can be mixed in: the data is a stream.
    """
    earlier = _earlier_run(settings)
    if earlier is None:
        return data
    if not isinstance(data.train_split, IndexedSplit):
        raise UsageError(
            f"--keep {settings.keep}: {data.name} is read as a stream, and no images can be mixed into that. "
            "Give the images as a folder or a .csv table."
        )
    names = class_names(settings, data.class_names)
    splits = {
        part: split.relabelled(labels_in(names, data.class_names)) for part, split in data.splits.items()
    }
    split, old_names = kept.parts["old"] if kept else (None, ())
    if split is not None and split.count:
        old = split.relabelled(labels_in(names, old_names))
        splits["train"] = JoinedSplit([splits["train"], old])
        LOG.info(f"kept: {old.count} old images of {len(np.unique(old.labels))} classes are mixed in")
    runs = [earlier, *_earlier_runs(earlier)]
    tested = {part: _load_earlier(runs, part, names) for part in splits if part != "train"}
    old_splits = {part: images.split for part, images in tested.items() if images is not None}
    return replace(data, class_names=names, splits=splits, old_splits=old_splits)


def mark_old_classes(run: RunFolder, images: LabelledImages) -> LabelledImages:
    """Mark which of the images, of other data than the run's, are of classes that it took over."""
    if images.part == "train" or not list(_earlier_runs(run)):
        return images
    own = run.environment().get("data", {}).get("class_names", [])
    is_old = np.array([name not in own for name in images.class_names])
    return replace(images, is_old=is_old[images.split.labels])


def add_earlier_images(run: RunFolder, images: LabelledImages) -> LabelledImages:
    """Add images of the earlier runs' data, marked as old, to test or validation images of a run's own."""
    names = run.class_names() or images.class_names
    runs = [] if images.part == "train" else list(_earlier_runs(run))
    earlier = _load_earlier(runs, images.part, names)
    if earlier is None or not isinstance(images.split, IndexedSplit):
        return images
    own = images.split.relabelled(labels_in(names, images.class_names))
    name, counts = f"{Path(images.name).name} and {earlier.name}", [own.count, earlier.split.count]
    is_old = np.repeat([False, True], counts)
    return LabelledImages(name, images.part, names, JoinedSplit([own, earlier.split]), is_old)


def _earlier_run(settings: TrainSettings) -> Optional[RunFolder]:
    """Return the run whose classes this one keeps; None where it keeps none."""
    return RunFolder(settings.init_from) if settings.init_from and settings.keep is not None else None


def _earlier_runs(run: RunFolder) -> Iterator[RunFolder]:
    """Return the runs whose classes `run` kept, the latest first."""
    seen = {run.path.resolve()}
    while run.config_path.exists():
        earlier = _earlier_run(load(TrainSettings, run.config_path))
        if earlier is None or earlier.path.resolve() in seen:  # it was overwritten by its own successor
            return
        run = earlier
        seen.add(run.path.resolve())
        yield run


def _load_earlier(runs: Sequence[RunFolder], part: str, names: Sequence[str]) -> Optional[LabelledImages]:
    """Return the images of a part of several runs' data, labelled by `names`; None where there are none.

    Runs whose data is not there as it was are left out, and a note says so.
    """
    found: List[LabelledImages] = []
    for run in runs:
        try:
            found.append(_load_unchanged(run, part))
        except UsageError as error:
            if part == "test":
                LOG.info(f"note: no old test images of {run.path}: {error}")
    if not found:
        return None
    data_names = dict.fromkeys(Path(one.name).name for one in found)
    splits = [one.split.relabelled(labels_in(names, one.class_names)) for one in found]
    return LabelledImages(" and ".join(data_names), part, names, JoinedSplit(splits))


def _load_unchanged(run: RunFolder, part: str) -> LabelledImages:
    images = load_run_images(run, part, unchanged=True)
    if not isinstance(images.split, IndexedSplit):
        raise UsageError(f"images of {images.name} can be read in their order alone, not one by one.")
    return images


def _images_of(run: RunFolder, settings: TrainSettings) -> Tuple[Split, Sequence[str]]:
    """Return images of every class of the earlier run: those it kept; if it kept none, some of its data."""
    each = settings.keep or 0
    if run.kept_path.is_dir():
        names = run.class_names()
        return _read(run.kept_path, names, "*", each), names
    try:
        images = _load_unchanged(run, "train")
    except UsageError as error:
        raise UsageError(
            f"--keep {each}: {run.path} kept no images (no folder {run.kept_path.name}: it was trained "
            f"without --keep, or by an earlier version), and its data cannot be used: {error} Put the data "
            "back, or keep the classes without images: --keep 0."
        ) from None
    return images.split.subset(_draw(images.split, each, settings.seed)), images.class_names


def _draw(split: Split, each: int, seed: int) -> np.ndarray:
    """Draw `each` images of every class by chance, or as many as there are: (n,) bool."""
    labels = np.asarray(split.labels)
    chosen = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        random = np.random.default_rng([seed, int(label)])
        chosen[random.permutation(np.flatnonzero(labels == label))[:each]] = True
    return chosen


def _read(folder: Path, names: Sequence[str], pattern: str, each: Optional[int] = None) -> FileSplit:
    """Return at most `each` kept images of every class: the run's own and older ones in turn."""
    by_class = [sorted((folder / _folder_name(name)).glob(pattern), key=_turn)[:each] for name in names]
    files = [file for of_class in by_class for file in of_class]
    Reading(advice=_DAMAGED).usable(files)
    labels = np.repeat(np.arange(len(names)), list(map(len, by_class)))
    return FileSplit(np.array(list(map(str, files)), str), labels)


def _turn(file: Path) -> Tuple[str, str]:
    age, _, number = file.stem.partition("-")
    return number, age  # "new" comes before "old"


def _folder_name(class_name: str) -> str:
    """Return the folder for a class: its name, without what has a meaning in paths of any system."""
    special = r'[<>:"/\\|?*%]|^\.+|[. ]+$'
    return re.sub(special, lambda found: "".join(f"%{ord(c):02X}" for c in found[0]), class_name)
