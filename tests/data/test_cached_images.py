"""Decoded images that are kept: the same pixels, in the same order, read once."""

import os
import resource
import time

import numpy as np
import pytest

from elastictrainer import RunError, UsageError
from log_lines import listen


def load(folder, **options):
    from elastictrainer.data import datasets

    return datasets.load(str(folder), 4, (16, 16), seed=3, **options)


def batches(minibatches):
    return [(x.numpy(), y.numpy()) for x, y in minibatches]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("place", ["memory", "disk"])
def test_the_same_pixels_in_the_same_order(tf, image_folder, place):
    plain = load(image_folder)
    kept = plain.cached(place)
    for ours, theirs in (
        (kept.train(2), plain.train(2)),
        (kept.train(2, first=3), plain.train(2, first=3)),
        (kept.test(), plain.test()),
    ):
        for (x, y), (other, label) in zip(batches(ours), batches(theirs)):
            np.testing.assert_array_equal(x, np.rint(other))
            np.testing.assert_array_equal(y, label)
    assert kept.steps_per_epoch == plain.steps_per_epoch and kept.imbalance() == plain.imbalance()


def test_a_later_run_uses_the_file_and_other_images_make_another(tf, image_folder, tmp_path):
    from PIL import Image

    said = listen()
    load(image_folder).cached("disk")
    assert len(said) == 2 and len(list((tmp_path / "cache").glob("*.npy"))) == 2
    load(image_folder).cached("disk")
    assert len(said) == 2
    changed = sorted(image_folder.glob("train/*/*.png"))[0]
    Image.new("RGB", (40, 36), (9, 9, 9)).save(changed)
    kept = load(image_folder).cached("disk")
    assert len(said) == 3
    assert min(x.min(axis=(1, 2, 3)).min() for x, _ in batches(kept.train(0))) >= 0
    assert any((x == 9).all(axis=(1, 2, 3)).any() for x, _ in batches(kept.train(0)))


def test_what_a_killed_run_left_is_removed_and_what_another_is_writing_is_not(tf, image_folder, tmp_path):
    folder = tmp_path / "cache"
    folder.mkdir()
    left, written = folder / ".images-a.1.part.npy", folder / ".images-b.2.part.npy"
    for file in (left, written):
        file.write_bytes(b"half")
    os.utime(left, (time.time() - 3600,) * 2)
    load(image_folder).cached("disk")
    assert not left.exists() and written.exists()


def test_a_torn_file_is_made_again(tf, image_folder, tmp_path):
    said = listen()
    load(image_folder).cached("disk")
    for file in (tmp_path / "cache").glob("*.npy"):
        file.write_bytes(file.read_bytes()[:200])
    kept = load(image_folder).cached("disk")
    assert len(said) == 4
    np.testing.assert_array_equal(
        batches(kept.test())[0][0], np.rint(batches(load(image_folder).test())[0][0])
    )


def test_what_cannot_be_kept_is_told(tf, image_folder):
    with pytest.raises(UsageError, match="none, memory, disk"):
        load(image_folder).cached("ram")
    with pytest.raises(UsageError, match="in files of their own"):
        load("demo").cached("memory")


def test_a_damaged_image_is_named(tf, image_folder):
    victim = sorted(image_folder.glob("train/*/*.png"))[2]
    content = victim.read_bytes()
    data = load(image_folder)
    victim.write_bytes(content[: len(content) // 2])
    with pytest.raises(RunError, match=victim.name):
        data.cached("memory")


def test_no_room_is_told(tf, image_folder, tmp_path):
    (tmp_path / "cache").write_text("in the way")
    with pytest.raises(RunError, match="cannot keep the images"):
        load(image_folder).cached("disk")


def test_a_full_disk_is_told_and_leaves_nothing(tf, image_folder, tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, hard))
    try:
        with pytest.raises(RunError, match="cannot keep the images"):
            load(image_folder).cached("disk")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list((tmp_path / "cache").iterdir())


def test_more_images_than_there_is_memory_are_refused(tf, image_folder, monkeypatch):
    monkeypatch.setattr("elastictrainer.data.cached_images.memory_bytes", lambda: 10_000)
    with pytest.raises(UsageError, match="--cache memory: the decoded images take .* Choose --cache disk"):
        load(image_folder).cached("memory")
