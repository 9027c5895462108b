"""One part of a data set: stored order, drawn orders, decoding."""

import numpy as np
import pytest

from elastictrainer.data.splits import ArraySplit, IndexedSplit, stored


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
    pairs = [(round(float(image[0, 0, 0])), int(label)) for image, label in stored(split, (2, 2), workers=2)]
    assert pairs == [
        (0, 4),
        (50, 3),
        (100, 2),
        (150, 1),
        (200, 0),
    ]


def test_how_images_are_read_is_for_a_subclass_to_say(split):
    with pytest.raises(NotImplementedError):
        IndexedSplit().reader((2, 2))
    assert split.find_corrupt() is None
