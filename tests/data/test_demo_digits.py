"""The embedded images."""

import numpy as np

from elastictrainer.data import demo_digits


def test_embedded_domains_share_no_handwriting_and_are_drawn_alike_each_time():
    images, labels = demo_digits.target("train")
    assert images.shape == (len(labels), 32, 32, 3) and images.dtype == np.uint8
    assert set(labels) == set(range(10))
    again, _ = demo_digits.target("train")
    np.testing.assert_array_equal(images, again)
    parts = [demo_digits._SOURCE, demo_digits._TRAIN, demo_digits._TEST]
    used = [set(range(1797)[p]) for p in parts]
    assert not (used[0] & used[1] or used[1] & used[2] or used[0] & used[2])
