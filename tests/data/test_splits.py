"""One part of a data set: stored order, drawn orders, decoding; several sources as one part."""

import numpy as np
import pytest

from elastictrainer.data.splits import ArraySplit, IndexedSplit, JoinedSplit, decode_in_order, labels_in


@pytest.fixture
def split(tf):
    """Five grey images, each a shade lighter; labels count down."""
    shades = np.arange(0, 250, 50, dtype=np.uint8)
    return ArraySplit(np.broadcast_to(shades[:, None, None, None], (5, 6, 4, 3)), np.arange(5)[::-1])


def order(split, seed):
    return [int(number) for number in split.ordered()(seed)]


def test_the_stored_order_and_drawn_ones(tf, split):
    assert split.count == 5 and order(split, None) == [0, 1, 2, 3, 4]
    drawn = [order(split, tf.constant(seed, tf.int64)) for seed in ([0, 1], [0, 1], [0, 2], [1, 1])]
    assert drawn[0] == drawn[1] and sorted(drawn[0]) == [0, 1, 2, 3, 4]
    assert drawn[0] != drawn[2] or drawn[0] != drawn[3]


def test_an_order_can_be_drawn_inside_a_data_set(tf, split):
    ordered = split.ordered()
    endless = tf.data.Dataset.range(3).flat_map(
        lambda epoch: ordered(tf.stack([tf.constant(0, tf.int64), epoch]))
    )
    drawn = [int(number) for number in endless]
    for epoch in range(3):
        assert drawn[5 * epoch : 5 * epoch + 5] == order(split, tf.constant([0, epoch], tf.int64))


def test_images_are_resized_and_keep_their_label_and_range(tf, split):
    image, label = split.decoder((8, 12))(tf.constant(3))
    assert image.shape == (8, 12, 3) and image.dtype == tf.float32
    assert (image.numpy() == 150).all() and int(label) == 1 and label.dtype == tf.int64


def test_all_are_decoded_in_the_stored_order(tf, split):
    pairs = [
        (round(float(image[0, 0, 0])), int(label))
        for image, label in decode_in_order(split, (2, 2), workers=2)
    ]
    assert pairs == [
        (0, 4),
        (50, 3),
        (100, 2),
        (150, 1),
        (200, 0),
    ]


def test_how_images_are_read_is_for_a_subclass_to_say(split):
    with pytest.raises(NotImplementedError):
        IndexedSplit().image(0, (2, 2))
    assert split.find_corrupt() is None


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
    labels = np.array([3, 2]), np.array([3]), np.array([0, 1])
    splits = split_of(10, 20), split_of(30, side=8), split_of(40, 50)
    return JoinedSplit([split.relabelled(of_split) for split, of_split in zip(splits, labels)])


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


def test_images_have_the_names_of_their_sources(joined):
    for number, split in enumerate(joined.splits):
        split.name_of = lambda k, number=number: f"{number}-{k}.png"
    names = [joined.name_of(k) for k in range(joined.count)]
    assert names == ["0-0.png", "0-1.png", "1-0.png", "2-0.png", "2-1.png"]
    assert joined.subset(np.array([0, 0, 1, 0, 1], bool)).name_of(1) == "2-1.png"


def test_labels_are_replaced(tf):
    split = split_of(10, 20, 30).relabelled(np.array([2, 0, 5]))
    assert read(tf, split) == [(10, 2), (20, 0), (30, 5)]
    assert split.labels.tolist() == [2, 0, 5] and split.count == 3
    joined = JoinedSplit([split_of(10, 20), split_of(30)]).relabelled(np.array([2, 0]))
    assert read(tf, joined.subset(np.array([False, True, True]))) == [(20, 0), (30, 2)]
    assert len(list(decode_in_order(split, (4, 4), 1))) == 3
