"""Images of several sources as one part of a data set, with labels of their common classes."""

from dataclasses import dataclass
from typing import Any, Callable, Dict, Optional, Sequence, Tuple

import numpy as np
import tensorflow as tf

from elastictrainer.data.splits import Example, IndexedSplit, Split
from elastictrainer.errors import DamagedImages


def labels_in(class_names: Sequence[str], own_names: Sequence[str]) -> np.ndarray:
    """Return (classes,) int64: the labels by `class_names` of a source's `own_names`, all of them there."""
    label_of = {name: label for label, name in enumerate(class_names)}
    return np.array([label_of[name] for name in own_names], np.int64)


@dataclass
class RelabelledSplit:
    """A Split whose labels are replaced: `label_of`, (classes,) int64, by its own."""

    split: Split
    label_of: np.ndarray

    @property
    def count(self) -> int:
        """Return the number of examples."""
        return self.split.count

    @property
    def labels(self) -> np.ndarray:
        """Return the labels, (count,) int, in the stored order."""
        return self.label_of[self.split.labels]

    def ordered(self) -> Callable[[Optional[tf.Tensor]], tf.data.Dataset]:
        """Return a function from a seed to the undecoded examples in that order."""
        return self.split.ordered()

    def decoder(self, size: Tuple[int, int]) -> Callable[[Any], Example]:
        """Return a function from an undecoded example to its image and label."""
        decode, label_of = self.split.decoder(size), tf.constant(self.label_of)

        def relabelled(example: Any) -> Example:
            image, label = decode(example)
            return image, tf.gather(label_of, label)

        return relabelled

    def find_corrupt(self) -> Optional[DamagedImages]:
        """Return the error that names the damaged image; None where it cannot be found."""
        return self.split.find_corrupt()

    def fingerprint(self) -> Dict[str, Any]:
        """Return the contents, in order, and the times of the files."""
        about = self.split.fingerprint()
        return {**about, "contents": (about["contents"], self.label_of.tolist())}


class JoinedSplit(IndexedSplit):
    """The images of several splits, one after the other."""

    def __init__(self, splits: Sequence[Any], labels: np.ndarray):
        """
        Args:
            splits: the sources, each an IndexedSplit.
            labels: (n,) int of all their images, instead of the labels that they have.
        """
        self.splits = list(splits)
        self.labels = labels

    @property
    def files(self) -> np.ndarray:
        """Return (n,) str, paths; AttributeError where not all images are files."""
        return np.concatenate([split.files for split in self.splits])

    def subset(self, chosen: np.ndarray) -> "JoinedSplit":
        """Return the examples that `chosen`, (n,) bool, marks."""
        ends = np.cumsum([split.count for split in self.splits])[:-1]
        parts = zip(self.splits, np.split(chosen, ends))
        left = [split.subset(of_it) for split, of_it in parts if of_it.any()]
        return JoinedSplit(left, self.labels[chosen])

    def reader(self, size: Tuple[int, int]) -> Callable[[tf.Tensor], tf.Tensor]:
        """Return a function from an image's number to the image."""
        readers = [split.reader(size) for split in self.splits]
        ends = tf.constant(np.cumsum([split.count for split in self.splits]), tf.int32)

        def read(number: tf.Tensor) -> tf.Tensor:
            number = tf.cast(number, tf.int32)
            which = tf.searchsorted(ends, number[None], side="right")[0]
            begin = tf.where(which > 0, ends[tf.maximum(which - 1, 0)], 0)
            branches = [lambda read_one=read_one: read_one(number - begin) for read_one in readers]
            return tf.ensure_shape(tf.switch_case(which, branches), (*size, 3))

        return read

    def find_corrupt(self) -> Optional[DamagedImages]:
        """Return the error that names the damaged image; None where it cannot be found."""
        return next((found for split in self.splits if (found := split.find_corrupt()) is not None), None)

    def fingerprint(self) -> Dict[str, Any]:
        """Return the contents, in order, and the times of the files."""
        about = [split.fingerprint() for split in self.splits]
        return {
            "contents": ([one["contents"] for one in about], self.labels.tolist()),
            "times": [one["times"] for one in about],
        }
