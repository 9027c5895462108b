"""Decoded images that are kept: the same pixels, in the same order, read once."""

import numpy as np
import pytest

from elastictrainer import RunError, UsageError


def load(folder, **options):
    from elastictrainer.data import datasets

    return datasets.load(str(folder), 4, (16, 16), seed=3, **options)


def batches(minibatches):
    return [(x.numpy(), y.numpy()) for x, y in minibatches]


def test_the_same_pixels_in_the_same_order(tf, image_folder):
    plain = load(image_folder)
    kept = plain.cached("memory")
    for ours, theirs in (
        (kept.train(2), plain.train(2)),
        (kept.train(2, first=3), plain.train(2, first=3)),
        (kept.test(), plain.test()),
    ):
        for (x, y), (other, label) in zip(batches(ours), batches(theirs)):
            np.testing.assert_array_equal(x, np.rint(other))
            np.testing.assert_array_equal(y, label)
    assert kept.steps_per_epoch == plain.steps_per_epoch and kept.imbalance() == plain.imbalance()


def test_what_cannot_be_kept_is_told(tf, image_folder):
    with pytest.raises(UsageError, match="none, memory"):
        load(image_folder).cached("ram")
    with pytest.raises(UsageError, match="--cache is for"):
        load("demo").cached("memory")


def test_a_damaged_image_is_named(tf, image_folder):
    victim = sorted(image_folder.glob("train/*/*.png"))[2]
    content = victim.read_bytes()
    data = load(image_folder)
    victim.write_bytes(content[: len(content) // 2])
    with pytest.raises(RunError, match=victim.name):
        data.cached("memory")


def test_more_images_than_there_is_memory_are_refused(tf, image_folder, monkeypatch):
    monkeypatch.setattr("elastictrainer.data.cached_images.memory_bytes", lambda: 10_000)
    with pytest.raises(UsageError, match="--cache memory"):
        load(image_folder).cached("memory")
