"""Images of several sources as one part: each with its own pixels and its label among the common classes."""

import numpy as np
import pytest

from elastictrainer.data.joined_splits import JoinedSplit, RelabelledSplit, labels_in
from elastictrainer.data.splits import ArraySplit, stored


def split_of(*greys, side=4):
    """An image of each grey; its label is its number."""
    images = np.array([np.full((side, side, 3), grey, np.uint8) for grey in greys])
    return ArraySplit(images, np.arange(len(greys)))


def read(tf, split, seed=None):
    """(grey, label) of each image."""
    order = split.ordered()(None if seed is None else tf.constant([seed, 0], tf.int64))
    found = order.map(split.decoder((4, 4)))
    return [(float(image.numpy().mean()), int(label)) for image, label in found]


@pytest.fixture
def joined(tf):
    return JoinedSplit([split_of(10, 20), split_of(30, side=8), split_of(40, 50)], np.array([3, 2, 3, 0, 1]))


def test_labels_are_found_by_name():
    assert labels_in(["a", "b", "c"], ["c", "a"]).tolist() == [2, 0]


def test_each_image_comes_with_its_label(tf, joined):
    assert read(tf, joined) == [(10, 3), (20, 2), (30, 3), (40, 0), (50, 1)]
    assert joined.count == 5


def test_they_are_shuffled_together(tf, joined):
    shuffled = [read(tf, joined, seed) for seed in range(4)]
    assert all(sorted(found) == sorted(read(tf, joined)) for found in shuffled)
    assert len(set(map(tuple, shuffled))) > 1


@pytest.mark.parametrize("chosen", [[1, 0, 1, 0, 1], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0]])
def test_a_subset_has_what_was_chosen(tf, joined, chosen):
    expected = [pair for pair, there in zip(read(tf, joined), chosen) if there]
    assert (read(tf, joined.subset(np.array(chosen, bool))) if expected else []) == expected


def test_files_are_told_where_all_are_files(joined):
    assert not hasattr(joined, "files")
    for number, split in enumerate(joined.splits):
        split.files = np.array([f"{number}-{k}.png" for k in range(split.count)])
    assert joined.files.tolist() == ["0-0.png", "0-1.png", "1-0.png", "2-0.png", "2-1.png"]


def test_labels_are_replaced(tf):
    split = RelabelledSplit(split_of(10, 20, 30), np.array([2, 0, 5]))
    assert read(tf, split) == [(10, 2), (20, 0), (30, 5)]
    assert split.labels.tolist() == [2, 0, 5] and split.count == 3
    assert len(list(stored(split, (4, 4), 1))) == 3
