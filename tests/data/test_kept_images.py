"""Images kept of each class: which, and that a file of them is read as it was written."""

import numpy as np
import pytest

from elastictrainer import UsageError
from elastictrainer.data import kept_images
from elastictrainer.data.kept_images import KeptImages
from elastictrainer.data.splits import ArraySplit


def kept(labels, ages, names="abc"):
    """Images whose first number is their place."""
    images = np.zeros((len(labels), 2, 2, 3), np.uint8)
    images[:, 0, 0, 0] = np.arange(len(labels))
    return KeptImages(images, np.array(labels, np.int64), np.array(ages, np.int64), tuple(names))


def places(images):
    return images.images[:, 0, 0, 0].tolist()


def test_a_file_is_read_as_it_was_written(tmp_path):
    written = kept([0, 2, 2], [0, 0, 1], ["a/b", "ü", "c d"])
    written.save(tmp_path / "kept.npz")
    found = kept_images.read(tmp_path / "kept.npz")
    assert found.class_names == written.class_names
    for name in ("images", "labels", "ages"):
        np.testing.assert_array_equal(getattr(found, name), getattr(written, name))


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b"no archive"),
        lambda path: path.write_bytes(path.read_bytes()[:-30]),
        lambda path: np.savez(path, images=np.zeros(3)),
        lambda path: np.savez(path, images=np.zeros((1, 2, 2, 3)), labels=[0], ages=[0], class_names=["a"]),
        lambda path: np.savez(
            path, images=np.zeros((1, 2, 2, 3), np.uint8), labels=[1], ages=[0], class_names=["a"]
        ),
        lambda path: np.savez(path, images=[], labels=[], ages=[], class_names=np.array([{}])),
    ],
)
def test_a_damaged_file_is_refused(tmp_path, damage):
    path = tmp_path / "kept.npz"
    kept([0], [0]).save(path)
    damage(path)
    with pytest.raises(UsageError, match="kept.npz "):
        kept_images.read(path)


def test_runs_share_a_class_in_equal_parts():
    images = kept([0, 0, 0, 1, 0, 0, 1], [0, 0, 0, 0, 1, 2, 1])
    assert places(images.limited(3)) == [0, 3, 4, 5, 6]
    assert places(images.limited(4)) == [0, 1, 3, 4, 5, 6]
    assert places(images.limited(1)) == [0, 3]
    assert places(images.limited(9)) == list(range(7))


def test_labels_follow_the_names():
    renamed = kept([0, 1, 2], [0, 0, 0]).renamed(["c", "x", "a", "b"])
    assert renamed.labels.tolist() == [2, 3, 0] and renamed.class_names == ("c", "x", "a", "b")
    assert kept([0], [1]).older().ages.tolist() == [2]


def test_parts_are_joined():
    assert kept_images.joined([kept([0], [0]), kept([1, 2], [3, 1])]).ages.tolist() == [0, 3, 1]


def test_so_many_of_each_class_are_drawn(tf):
    labels = np.array([0, 1, 0, 0, 2, 0, 2])
    images = np.zeros((7, 4, 4, 3), np.uint8) + np.arange(7, dtype=np.uint8)[:, None, None, None]
    split = ArraySplit(images, labels)
    found = kept_images.draw(split, ["a", "b", "c"], 2, (2, 2), seed=3)
    assert found.labels.tolist() == [0, 0, 1, 2, 2] and not found.ages.any()
    assert labels[places(found)].tolist() == found.labels.tolist(), "an image has its own label"
    assert found.images.shape == (5, 2, 2, 3) and len(set(places(found))) == 5
    more = kept_images.draw(split, ["a", "b", "c"], 4, (2, 2), seed=3)
    assert places(more.limited(2)) == places(found), "more of them begin with the same"
    others = {tuple(places(kept_images.draw(split, "abc", 2, (2, 2), seed))) for seed in range(8)}
    assert len(others) > 1
