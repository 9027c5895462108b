"""The demo data: sizes, types, and that it is always the same."""

import numpy as np
import pytest

from elastictrainer.data import demo_digits


@pytest.mark.parametrize("split, count", [("train", 1397), ("test", 800)])
def test_sizes_types_and_classes(split, count):
    images, labels = demo_digits.digits(split)
    assert images.shape == (count, 32, 32, 3) and images.dtype == np.uint8
    assert labels.shape == (count,) and labels.dtype == np.int64
    assert set(labels.tolist()) == set(range(len(demo_digits.CLASSES)))


def test_the_images_are_the_same_each_time():
    images, labels = demo_digits.digits("test")
    again, same_labels = demo_digits.digits("test")
    np.testing.assert_array_equal(images, again)
    np.testing.assert_array_equal(labels, same_labels)


def test_the_copies_of_a_digit_are_on_other_patches():
    images, labels = demo_digits.digits("test")
    np.testing.assert_array_equal(labels[::2], labels[1::2])
    assert (np.abs(images[::2].astype(float) - images[1::2]).mean(axis=(1, 2, 3)) > 1).all()


def test_what_is_drawn_lightens_the_photograph_and_what_is_empty_does_not():
    full, empty = (
        demo_digits.on_photographs(np.full((20, 8, 8), cover), np.random.default_rng(0)).mean()
        for cover in (1.0, 0.0)
    )
    assert full > empty + 10


def test_training_and_test_images_share_no_handwriting():
    train, test = (set(range(1797)[part]) for part, _ in demo_digits._PARTS.values())
    assert len(train | test) == 1797 and not train & test
