"""The demo data: sizes, types, and that a seed decides what is drawn."""

import numpy as np
import pytest

from elastictrainer.data import demo_digits


@pytest.mark.parametrize(
    "draw, split, count",
    [
        (demo_digits.source, "train", 797 * 8),
        (demo_digits.source, "test", 400),
        (demo_digits.target, "train", 600 * 3),
        (demo_digits.target, "test", 400),
    ],
)
def test_sizes_types_and_classes(draw, split, count):
    images, labels = draw(split)
    assert images.shape == (count, 32, 32, 3) and images.dtype == np.uint8
    assert labels.shape == (count,) and labels.dtype == np.int64
    assert set(labels.tolist()) == set(range(len(demo_digits.CLASSES)))


@pytest.mark.parametrize("draw", [demo_digits.source, demo_digits.target])
def test_the_seed_decides_what_is_drawn(draw):
    images, labels = draw("test", seed=1)
    again, _ = draw("test", seed=1)
    other, other_labels = draw("test", seed=2)
    np.testing.assert_array_equal(images, again)
    np.testing.assert_array_equal(labels, other_labels)
    assert not np.array_equal(images, other)


def test_the_domains_differ_where_the_digits_are_the_same():
    (source, labels), (target, target_labels) = demo_digits.source("test"), demo_digits.target("test")
    np.testing.assert_array_equal(labels, target_labels)
    # Photographs have more detail than smooth patterns: neighbouring pixels of the border differ more.
    detail = [np.abs(np.diff(images[:, :3].astype(float), axis=2)).mean() for images in (source, target)]
    assert detail[1] > 1.2 * detail[0]


def test_an_unknown_split_is_an_error():
    with pytest.raises(KeyError):
        demo_digits.target("validation")


def test_source_training_and_test_images_share_no_handwriting():
    used = [set(range(1797)[part]) for part in (demo_digits._SOURCE, demo_digits._TRAIN, demo_digits._TEST)]
    assert not (used[0] & used[1] or used[1] & used[2] or used[0] & used[2])
