"""The images: a registry of data sets, any image folder, and one input pipeline for all of them."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Callable, Iterator, List, Optional, Tuple

import numpy as np
import tensorflow as tf

from elastictrainer.data import tfds_data, user_data
from elastictrainer.data.cached_images import CachedSplit, check
from elastictrainer.data.image_folder import FolderSplit, read_folder
from elastictrainer.data.splits import IndexedSplit, Split, prepare_image
from elastictrainer.data.tfds_data import TFDS_CLASSES
from elastictrainer.errors import RunError, UsageError
from elastictrainer.registry import DATASET

Minibatch = Tuple[tf.Tensor, tf.Tensor]  # images (batch, H, W, 3) float32 in 0..255, labels (batch,) int64

_PREFETCH_BATCHES = 4
_PROBE = 1  # sets the orders of probe minibatches apart from those of epochs


@dataclass
class ImageData:
    """A data set as minibatches.

    Attributes:
        name: what to call it.
        class_names: by label.
        train_split, test_split: the two parts.
        batch_size: of training.
        image_size: height and width that images are resized to.
        seed: of the order of training images.
        part: k and n, where only each n-th image is read, from number k on: one process' share of every minibatch.
    """

    name: str
    class_names: Tuple[str, ...]
    train_split: Split
    test_split: Split
    batch_size: int
    image_size: Tuple[int, int]
    seed: int = 0
    part: Tuple[int, int] = (0, 1)

    def __post_init__(self) -> None:
        if self.train_split.count < self.batch_size:
            raise UsageError(
                f"{self.name} has {self.train_split.count} training images, fewer than one minibatch of "
                f"{self.batch_size}; lower --batch-size."
            )
        if self.batch_size % self.part[1]:
            raise UsageError(
                f"--batch-size {self.batch_size} cannot be divided among {self.part[1]} processes."
            )

    def imbalance(self) -> str:
        """Which class has the fewest and which the most training images, where the one has twice the other; or nothing."""
        labels = getattr(self.train_split, "labels", None)
        if labels is None:
            return ""
        counts = np.bincount(labels, minlength=len(self.class_names))
        few, many = int(counts.argmin()), int(counts.argmax())
        if counts[many] < 2 * counts[few]:
            return ""
        return f"training images by class: {counts[few]} ({self.class_names[few]}) to {counts[many]} ({self.class_names[many]})"

    def cached(self, place: str, say: Callable[[str], None]) -> "ImageData":
        """The same data, its images decoded once and kept in "memory" or on "disk" (see CachedSplit); "none": as it is."""
        check(place, self.train_split)
        if place == "none":
            return self
        kept = [
            CachedSplit(split, self.image_size, place, _workers(), say)
            for split in (self.train_split, self.test_split)
        ]
        return replace(self, train_split=kept[0], test_split=kept[1])

    @property
    def steps_per_epoch(self) -> int:
        """Full minibatches in an epoch; the few images left over differ from epoch to epoch."""
        return self.train_split.count // self.batch_size

    def stream(self, epoch: int = 0, first: int = 0) -> tf.data.Dataset:
        """Minibatches from number `first` of an epoch on, epoch after epoch without end.

        The order of an epoch depends on `seed` and its number alone: any part can be repeated. What comes before
        `first` is not decoded.

        Returns:
            Minibatches, or this process' part of each: (batch, H, W, 3) float32 in 0..255, (batch,) int64 labels.
        """
        return self._shuffled(lambda number: tf.stack([self.seed, number]), epoch, first)

    def train(self, epoch: int, first: int = 0) -> Iterator[Minibatch]:
        """The minibatches of one epoch from number `first` on; see `stream`."""
        yield from self._read(self.stream(epoch, first).take(self.steps_per_epoch - first), self.train_split)

    def probe(self, number: int) -> Iterator[Minibatch]:
        """An epoch of training minibatches in an order of its own, that of no epoch; another for each `number`."""

        def seed(epoch: tf.Tensor) -> tf.Tensor:
            return tf.random.experimental.stateless_fold_in(tf.stack([self.seed, epoch]), _PROBE)

        yield from self._read(self._shuffled(seed, number).take(self.steps_per_epoch), self.train_split)

    def test(self, batch_size: int = 32) -> Iterator[Minibatch]:
        """All test images in their stored order, or this process' part of them; the last minibatch may be smaller."""
        examples = self.test_split.ordered()(None).shard(self.part[1], self.part[0])
        yield from self._read(self._decoded(examples, self.test_split, batch_size), self.test_split)

    def unreadable(self, split: Split, message: str) -> RunError:
        """The error to raise after reading `split` has failed with `message`: it names the image if it can."""
        return RunError(split.culprit() or f"reading {self.name} failed: {message}")

    def _shuffled(
        self, seed_of: Callable[[tf.Tensor], tf.Tensor], epoch: int, first: int = 0
    ) -> tf.data.Dataset:
        """Minibatches as `stream` gives them; `seed_of` an epoch's number is the seed of its order, (2,) int64."""
        ordered = self.train_split.ordered()

        def examples(number: tf.Tensor) -> tf.data.Dataset:
            skipped = tf.where(tf.equal(number, epoch), first * self.batch_size, 0)
            full = ordered(seed_of(number)).take(self.steps_per_epoch * self.batch_size)
            return full.skip(tf.cast(skipped, tf.int64)).shard(self.part[1], self.part[0])

        endless = tf.data.Dataset.range(epoch, tf.int64.max).flat_map(examples)
        return self._decoded(endless, self.train_split, self.batch_size // self.part[1], drop_remainder=True)

    def _decoded(
        self, examples: tf.data.Dataset, split: Split, batch_size: int, drop_remainder: bool = False
    ) -> tf.data.Dataset:
        """Minibatches of undecoded examples."""
        dataset = examples.map(split.decoder(self.image_size), num_parallel_calls=_workers())
        dataset = dataset.batch(batch_size, drop_remainder=drop_remainder).prefetch(_PREFETCH_BATCHES)
        options = tf.data.Options()
        options.autotune.enabled = False  # its thread stalls the end of an epoch by up to a minute
        options.deterministic = True
        return dataset.with_options(options)

    def _read(self, dataset: tf.data.Dataset, split: Split) -> Iterator[Minibatch]:
        try:
            yield from dataset
        except tf.errors.OpError as error:
            raise self.unreadable(split, error.message) from None


def _workers() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def load(
    name: str,
    batch_size: int,
    image_size: Tuple[int, int],
    seed: int = 0,
    data_dir: Optional[str] = None,
    validation_split: Optional[float] = None,
) -> ImageData:
    """A data set by name, or the user's own images: a folder, a `.csv` table of files, or `.npz` arrays.

    Args:
        name: one of `names.DATASET`, or a path; a folder holds split/class/image, or class/image with `validation_split`, or what
            a builder of tensorflow-datasets has prepared.
        batch_size: of training.
        image_size: height and width to resize to.
        seed: of the training order; of the embedded data also of its drawing; of what is set apart for testing.
        data_dir: where tensorflow-datasets keeps its data.
        validation_split: share of every class that is set apart for testing, where the data has no split of its own.

    Raises:
        UsageError: unknown name, data that is not on this machine and cannot be fetched, a malformed folder or file, a
            split asked for where there is one, or none where there is none.
    """
    DATASET.check(name)
    has_split = True
    if name == "demo":
        from elastictrainer.data import demo_digits

        names, splits = (
            demo_digits.CLASSES,
            [ArraySplit(*demo_digits.target(part)) for part in ("train", "test")],
        )
    elif name in TFDS_CLASSES:
        names, splits = tfds_data.registered(name, data_dir)
    else:
        names, splits, has_split = _from_path(Path(name), validation_split, seed)
    if has_split and validation_split is not None:
        raise UsageError(f"{name} has a test part of its own: leave out --validation-split.")
    return ImageData(name, tuple(names), splits[0], splits[1], batch_size, tuple(image_size), seed)


def _from_path(
    path: Path, validation_split: Optional[float], seed: int
) -> Tuple[List[str], List[Split], bool]:
    """Class names, the splits train and test, and whether they were in the data."""
    if tfds_data.is_prepared(path):
        return (*tfds_data.prepared(path), True)
    if path.is_dir():
        if validation_split is None or (path / "train").is_dir():
            return (*read_folder(path), True)
        names, items, labels = user_data.read_class_folders(path)
        apart = None
    elif path.suffix == ".csv":
        (names, items, labels), apart = user_data.read_table(path)
    elif path.suffix == ".npz":
        names, items, labels, apart = user_data.read_arrays(path)
    else:
        raise UsageError(f"{path} is neither a folder nor a .csv or .npz file.")
    has_split = apart is not None
    if not has_split:
        if validation_split is None:
            raise UsageError(
                f"{path} has no test part: --validation-split 0.2 sets a fifth of every class apart for testing."
            )
        apart = user_data.test_part(labels, names, validation_split, seed)
    parts = user_data.split_parts(items, labels, apart)
    lacking = [name for k, name in enumerate(names) if not all((labels == k).any() for _, labels in parts)]
    if lacking:
        raise UsageError(f"{path}: class {lacking[0]!r} is not in both train and test.")
    kind = ArraySplit if path.suffix == ".npz" else FolderSplit
    return names, [kind(*part) for part in parts], has_split


def classes_of(name: str, validation_split: Optional[float] = None) -> int:
    """The number of classes of a data set, without reading any image of a registered one."""
    if name in TFDS_CLASSES:
        return TFDS_CLASSES[name]
    return len(load(name, batch_size=1, image_size=(32, 32), validation_split=validation_split).class_names)


@dataclass
class ArraySplit(IndexedSplit):
    """Images in memory: (n, H, W, 3) in 0..255, and (n,) labels."""

    images: np.ndarray
    labels: np.ndarray

    def reader(self, size: Tuple[int, int]) -> Callable[[tf.Tensor], tf.Tensor]:
        images = tf.constant(self.images)
        return lambda number: prepare_image(images[number], size)
