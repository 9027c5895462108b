"""Images as minibatches: one input pipeline for all data sets."""

from dataclasses import dataclass, field, replace
from typing import Any, Callable, Iterator, List, Mapping, Optional, Tuple

import numpy as np
import tensorflow as tf

from elastictrainer.data.splits import ArraySplit, Split, decode_all, read_error, stratified_places
from elastictrainer.data.user_images import FileSplit
from elastictrainer.errors import UsageError
from elastictrainer.runs.environment import memory_bytes, processors

Minibatch = Tuple[tf.Tensor, tf.Tensor]  # images (batch, H, W, 3) float32 in 0..255, labels (batch,) int64

_PREFETCH_BATCHES = 4  # decoding in parallel comes in bursts
_PROBE = 1  # sets the orders of probe minibatches apart from those of epochs


@dataclass
class ImageData:
    """A data set as minibatches."""

    name: str  # for messages
    class_names: Tuple[str, ...]  # by label
    splits: Mapping[str, Split]  # by part: train; test, unless only trained on; and val where there is one
    batch_size: int  # of training
    image_size: Tuple[int, int]  # height and width that images are resized to
    seed: int = 0  # of the order of training images
    evaluation_batch_size: int = 32  # of testing and validation
    old_splits: Mapping[str, Split] = field(default_factory=dict)  # of earlier runs' data, by part, to test

    def __post_init__(self) -> None:
        broken = [name for name in self.class_names if not name.strip() or not name.isprintable()]
        if broken:
            raise UsageError(
                f"{self.name}: the class name {broken[0]!r} cannot stand in a list of labels; rename it, in "
                "letters, digits, spaces and signs."
            )

    def class_weights(self) -> List[float]:
        """Return a weight for each label so that all classes count alike; UsageError for one without images.

        Their mean over the training images is 1.
        """
        from sklearn.utils.class_weight import compute_class_weight

        labels, classes = self.train_split.labels, np.arange(len(self.class_names))
        empty = np.setdiff1d(classes, labels)
        if len(empty):
            raise UsageError(
                f"{self.name}: the class {self.class_names[empty[0]]!r} has no training image to weigh; "
                "leave --class-weights out."
            )
        return compute_class_weight("balanced", classes=classes, y=labels).tolist()

    def in_memory(self) -> "ImageData":
        """Return the data, its images decoded once and kept in memory.

        UsageError where they are there already, or do not fit; DataError where one cannot be decoded.
        """
        if not all(isinstance(split, FileSplit) for split in self.splits.values()):
            raise UsageError(
                "--cache-images is for images in files of their own (a folder, a .csv table); these are in "
                "memory, or in the files of a collection."
            )
        count = sum(split.count for split in self.splits.values())
        needed, available = 3 * count * self.image_size[0] * self.image_size[1], memory_bytes()
        if needed > available:
            raise UsageError(
                f"--cache-images memory: the decoded images take {needed / 1e9:.1f} GB, and this machine has "
                f"{available / 1e9:.1f} GB. Leave --cache-images out."
            )
        kept = {
            part: ArraySplit(decode_all(split, self.image_size), split.labels)
            for part, split in self.splits.items()
        }
        return replace(self, splits=kept)

    @property
    def train_split(self) -> Split:
        return self.splits["train"]

    @property
    def test_split(self) -> Split:
        return self.splits["test"]

    @property
    def val_split(self) -> Optional[Split]:
        """Return the images that choose the best weights; None: they are not chosen."""
        return self.splits.get("val")

    @property
    def steps_per_epoch(self) -> int:
        """Return the minibatches of an epoch; the last one is filled up with the epoch's first images."""
        return -(-self.train_split.count // self.batch_size)

    def stream(self, epoch: int = 0, first: int = 0) -> tf.data.Dataset:
        """Return minibatches from number `first` of an epoch on, epoch after epoch without end.

        The order of an epoch depends on `seed` and its number alone: any part can be repeated. What comes
        before `first` is not decoded.
        """
        return self._shuffled(lambda number: tf.stack([self.seed, number]), epoch, first)

    def train(self, epoch: int, first: int = 0) -> Iterator[Minibatch]:
        """Return the minibatches of one epoch from number `first` on, as `stream` gives them."""
        yield from self._read(self.stream(epoch, first).take(self.steps_per_epoch - first), self.train_split)

    def probe(self, number: int) -> Iterator[Minibatch]:
        """Return as many minibatches as an epoch has, in an order of no epoch; another for each `number`."""

        def seed(epoch: tf.Tensor) -> tf.Tensor:
            return tf.random.experimental.stateless_fold_in(tf.stack([self.seed, epoch]), _PROBE)

        yield from self._read(self._shuffled(seed, number).take(self.steps_per_epoch), self.train_split)

    def test(self, first: int = 0, end: Optional[int] = None) -> Iterator[Tuple[Any, ...]]:
        """Read all test images as stored; the last minibatch may be smaller.

        With `end`: those from number `first` to before `end` of an order by `seed` that mixes the classes:
        what comes first is a sample with the same share of every class. Where there are `old_splits`, each
        minibatch says as its third item whether it is of these.
        """
        yield from self._in_part("test", first, end)

    def validation(self, first: int = 0, end: Optional[int] = None) -> Iterator[Tuple[Any, ...]]:
        """Return the images of the validation part, which must exist, as `test` does."""
        yield from self._in_part("val", first, end)

    def evaluated_count(self, part: str) -> int:
        """Return how many images of a part are evaluated, those of earlier runs' data included."""
        return self.splits[part].count + (self.old_splits[part].count if part in self.old_splits else 0)

    def _in_part(self, part: str, first: int, end: Optional[int]) -> Iterator[Tuple[Any, ...]]:
        splits = [splits[part] for splits in (self.splits, self.old_splits) if part in splits]
        if end is not None:
            places = stratified_places(np.concatenate([split.labels for split in splits]), self.seed)
            counts = np.cumsum([split.count for split in splits[:-1]])
            chosen = np.split((first <= places) & (places < end), counts)
            splits = [split.subset(mask) for split, mask in zip(splits, chosen)]
        for is_old, split in enumerate(splits):
            for minibatch in self.batches_of(split):
                yield minibatch if part not in self.old_splits else (*minibatch, bool(is_old))

    def batches_of(self, split: Split) -> Iterator[Minibatch]:
        """Return the images of `split` as stored; the last minibatch may be smaller."""
        yield from self._read(self._decoded(split.ordered()(None), split, self.evaluation_batch_size), split)

    def _shuffled(
        self, seed_of: Callable[[tf.Tensor], tf.Tensor], epoch: int, first: int = 0
    ) -> tf.data.Dataset:
        """Return minibatches as `stream`; `seed_of` an epoch's number gives its order's seed, (2,) int64."""
        ordered = self.train_split.ordered()

        def examples(number: tf.Tensor) -> tf.data.Dataset:
            skipped = tf.where(tf.equal(number, epoch), first * self.batch_size, 0)
            full = ordered(seed_of(number)).repeat().take(self.steps_per_epoch * self.batch_size)
            return full.skip(tf.cast(skipped, tf.int64))

        endless = tf.data.Dataset.range(epoch, tf.int64.max).flat_map(examples)
        return self._decoded(endless, self.train_split, self.batch_size, drop_remainder=True)

    def _decoded(
        self, examples: tf.data.Dataset, split: Split, batch_size: int, drop_remainder: bool = False
    ) -> tf.data.Dataset:
        dataset = examples.map(split.decoder(self.image_size), num_parallel_calls=processors())
        dataset = dataset.batch(batch_size, drop_remainder=drop_remainder).prefetch(_PREFETCH_BATCHES)
        options = tf.data.Options()
        options.autotune.enabled = False  # its thread stalls the end of an epoch by up to a minute
        options.deterministic = True
        return dataset.with_options(options)

    def _read(self, dataset: tf.data.Dataset, split: Split) -> Iterator[Minibatch]:
        try:
            yield from dataset
        except tf.errors.OpError as error:
            raise read_error(split, error) from None
