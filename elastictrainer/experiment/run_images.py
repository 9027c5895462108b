"""Labelled images of a run: of its data, of the runs before it, and those kept for the runs after it."""

import functools
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np
from PIL import Image

from elastictrainer.data import datasets, inspection
from elastictrainer.data.image_data import ImageData
from elastictrainer.data.pictures import Size
from elastictrainer.data.splits import (
    PARTS,
    REPLACE_BEGUN,
    UNSPLIT,
    IndexedSplit,
    JoinedSplit,
    Split,
    decode_all,
    labels_in,
    split_dataset,
)
from elastictrainer.data.user_images import FileSplit, Reading
from elastictrainer.errors import UsageError, abbreviated
from elastictrainer.experiment.options import load
from elastictrainer.experiment.settings import TrainSettings
from elastictrainer.runs.files import atomic_write
from elastictrainer.runs.log import LOG
from elastictrainer.runs.run_folder import RunFolder

_DAMAGED = "Put it back from a copy, or delete it."


@dataclass(frozen=True)
class LabelledImages:
    """Labelled images of a part of a data set."""

    name: str  # of the data set
    part: str  # test, val or train; empty where the data has no parts
    class_names: Sequence[str]  # by label
    split: Split
    is_old: Optional[np.ndarray] = None  # (n,) bool, those known before the run; None: none, or not asked

    @functools.cached_property
    def image_names(self) -> List[str]:
        return [self.split.name_of(number) for number in range(self.split.count)]

    def labelled_by(self, names: Sequence[str]) -> Split:
        """Return the images, their labels being those by `names`, among which are all of their classes."""
        return self.split.relabelled(labels_in(names, self.class_names))

    def drawn(self, per_class: int, seed: int) -> "LabelledImages":
        """Draw `per_class` images of every class by chance, or as many as there are."""
        labels = np.asarray(self.split.labels)
        chosen = np.zeros(len(labels), bool)
        for label in np.unique(labels):
            random = np.random.default_rng([seed, int(label)])
            chosen[random.permutation(np.flatnonzero(labels == label))[:per_class]] = True
        return replace(self, split=self.split.subset(chosen))

    def __str__(self) -> str:
        word = f"{PARTS[self.part]} " if self.part else ""
        return f"{self.split.count} {word}images of {Path(self.name).name}"


def reading_again(run: RunFolder, settings: TrainSettings) -> Reading:
    """Return how the data of a run is read after its start: without the files that it left out then."""
    left_out = list(run.environment().get("damaged", {}).get("left_out", []))
    return Reading(left_out=left_out, advice=REPLACE_BEGUN, label_column=settings.label_column)


def require_unchanged(
    run: RunFolder, name: str, now: inspection.Fingerprint, advice: str, parts: Optional[Iterable[str]] = None
) -> None:
    """Raise UsageError, whose last sentence is `advice`, if the data `name` of a run changed since its start.

    `now` is its fingerprint, see `inspection.fingerprint`. `parts` are compared; None: all. Of a run that was
    killed before it had begun, nothing is known.
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
    be set apart now may have been trained on. `data_dir` replaces the run's setting. UsageError where the
    data is not there any more, has no such part, or is other data.
    """
    settings = load(TrainSettings, run.config_path)
    try:
        reading = reading_again(run, settings)
        names, own = datasets.load_parts(settings.dataset, data_dir or settings.data_dir, reading)
    except UsageError as error:
        started_in = run.environment().get("directory")
        raise UsageError(
            f"{error} The run was started in {started_in}; go there, or put its data back. "
            "et-evaluate takes other data, too: --dataset."
        ) from None
    shares = settings.test_split, settings.validation_split
    parts = split_dataset(settings.dataset, names, own, *shares, settings.seed)
    images = _part_of_data(settings.dataset, names, parts, part)
    drawn = {name: split for name, split in parts.items() if split is not own.get(name)}
    compared = drawn if images.part in drawn else {images.part: images.split} if unchanged else {}
    if compared:
        now = inspection.fingerprint(names, compared)
        other = "" if unchanged else ", or name images to test on with --dataset"
        require_unchanged(run, images.name, now, f"Put it back as it was{other}.", compared)
    return images


def load_images(
    name: str,
    part: Optional[str] = None,
    data_dir: Optional[str] = None,
    label_column: Optional[str] = None,
) -> LabelledImages:
    """Return the images of a part of a data set ("test" if None), or all of them where it has no parts."""
    names, parts = datasets.load_parts(name, data_dir, Reading(label_column=label_column))
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


def earlier_run(settings: TrainSettings) -> Optional[RunFolder]:
    """Return the run whose classes a run keeps; None where it keeps none."""
    keeps = settings.init_from and settings.keep is not None
    return RunFolder(settings.init_from or "") if keeps else None


def class_names(earlier: Optional[RunFolder], own: Sequence[str]) -> Tuple[str, ...]:
    """Return the classes of a run's head, by label: those of the `earlier` run, and `own` that are new."""
    return tuple(dict.fromkeys([*(earlier.class_names() if earlier else ()), *own]))


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
    """Images that a run keeps as files."""

    # "new" are of the run's own data; "old" of the earlier run, if there is one: they train with the others.
    parts: Mapping[str, LabelledImages]
    size: Size  # height and width of the files

    def save(self, folder: Path) -> None:
        """Write all into `folder`/CLASS/, completely or not at all; DataError where one cannot be decoded."""
        with atomic_write(folder) as unfinished:
            unfinished.mkdir()
            for age, images in self.parts.items():
                numbers = [0] * len(images.class_names)
                for pixels, label in zip(decode_all(images.split, self.size), images.split.labels):
                    place = unfinished / _folder_name(images.class_names[label])
                    place.mkdir(exist_ok=True)
                    Image.fromarray(pixels).save(place / f"{age}-{numbers[label]:05d}.png")
                    numbers[label] += 1


def take_over(
    settings: TrainSettings, data: ImageData, begun: Optional[Path] = None
) -> Tuple[ImageData, Optional[KeptImages]]:
    """Return a run's data with what the earlier run adds, if there is one; and the images to keep, if any.

    The earlier run adds classes, images to train and to test on. `begun` is the folder of images that a
    resumed run keeps, if it exists. UsageError where the earlier run kept none and its data is not there as
    it was, one is damaged, or none can be mixed in: the data is a stream.
    """
    earlier, per_class = earlier_run(settings), settings.keep or 0
    parts: Dict[str, LabelledImages] = {}
    if per_class:
        own = LabelledImages(data.name, "train", data.class_names, data.train_split)
        parts["new"] = own.drawn(per_class, settings.seed)
        if earlier is not None and begun is not None and begun.is_dir():
            parts["old"] = _read_kept(begun, class_names(earlier, data.class_names), "old-*")
        elif earlier is not None:
            parts["old"] = _old_images(earlier, per_class, settings.seed)
    if earlier is not None:
        if not isinstance(data.train_split, IndexedSplit):
            raise UsageError(
                f"--keep {per_class}: {data.name} is read as a stream, and no images can be mixed into that. "
                "Give the images as a folder or a .csv table."
            )
        data = _mixed(data, earlier, parts.get("old"))
    return data, KeptImages(parts, data.image_size) if parts else None


def _mixed(data: ImageData, earlier: RunFolder, old: Optional[LabelledImages]) -> ImageData:
    """Return the data with the classes of the earlier run, its test images, and `old` images to train on."""
    names = class_names(earlier, data.class_names)
    label_of = labels_in(names, data.class_names)
    splits = {part: split.relabelled(label_of) for part, split in data.splits.items()}
    if old is not None:
        known = np.unique(old.split.labels)
        left = {*data.class_names, *(old.class_names[label] for label in known)}
        forgotten = [name for name in names if name not in left]
        if forgotten:
            LOG.info(f"note: no image is left of {abbreviated(forgotten)}: they will be forgotten")
        if len(known):
            splits["train"] = JoinedSplit([splits["train"], old.labelled_by(names)])
            LOG.info(f"kept: {old.split.count} old images of {len(known)} classes are mixed in")
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
    own = images.labelled_by(names)
    name, counts = f"{Path(images.name).name} and {earlier.name}", [own.count, earlier.split.count]
    is_old = np.repeat([False, True], counts)
    return LabelledImages(name, images.part, names, JoinedSplit([own, earlier.split]), is_old)


def _earlier_runs(run: RunFolder) -> Iterator[RunFolder]:
    """Return the runs whose classes `run` kept, the latest first."""
    seen = {run.path.resolve()}
    while run.config_path.exists():
        earlier = earlier_run(load(TrainSettings, run.config_path))
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
    joined = JoinedSplit([one.labelled_by(names) for one in found])
    return LabelledImages(" and ".join(data_names), part, names, joined)


def _load_unchanged(run: RunFolder, part: str) -> LabelledImages:
    images = load_run_images(run, part, unchanged=True)
    if not isinstance(images.split, IndexedSplit):
        raise UsageError(f"images of {images.name} can be read in their order alone, not one by one.")
    return images


def _old_images(run: RunFolder, per_class: int, seed: int) -> LabelledImages:
    """Return images of every class of the earlier run: those it kept; if it kept none, some of its data."""
    if run.kept_path.is_dir():
        return _read_kept(run.kept_path, run.class_names(), "*", per_class)
    try:
        return _load_unchanged(run, "train").drawn(per_class, seed)
    except UsageError as error:
        raise UsageError(
            f"--keep {per_class}: {run.path} kept no images (no folder {run.kept_path.name}: it was trained "
            f"without --keep, or by an earlier version), and its data cannot be used: {error} Put the data "
            "back, or keep the classes without images: --keep 0."
        ) from None


def _read_kept(
    folder: Path, names: Sequence[str], pattern: str, per_class: Optional[int] = None
) -> LabelledImages:
    """Return at most `per_class` kept images of every class: the run's own and older ones in turn."""
    # "new-00001.png": by number, then by age, "new" before "old".
    found = [(folder / _folder_name(name)).glob(pattern) for name in names]
    by_class = [sorted(files, key=lambda file: file.stem.partition("-")[::-1])[:per_class] for files in found]
    files = [file for of_class in by_class for file in of_class]
    Reading(advice=_DAMAGED).usable(files)
    labels = np.repeat(np.arange(len(names)), list(map(len, by_class)))
    return LabelledImages(str(folder), "train", names, FileSplit(np.array(files, str), labels))


def _folder_name(class_name: str) -> str:
    """Return the folder for a class: its name, without what has a meaning in paths of any system."""
    special = r'[<>:"/\\|?*%]|^\.+|[. ]+$'
    return re.sub(special, lambda found: "".join(f"%{ord(c):02X}" for c in found[0]), class_name)
