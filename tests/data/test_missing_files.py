"""A run goes on without an image that it named and that was deleted: the order of the others stays."""

import numpy as np
import pytest

pytest.importorskip("tensorflow")
from elastictrainer import UsageError
from elastictrainer.data import datasets, fingerprint, missing_files
from elastictrainer.data.reading import Reading
from log_lines import listen


def load(folder, damaged=(), **options):
    return datasets.load(str(folder), 4, (8, 8), reading=Reading(damaged=damaged), **options)


def order(data):
    return [y.numpy().tolist() for _, y in data.train(3)]


@pytest.mark.parametrize("change", ["deleted", "replaced"])
def test_the_order_and_the_fingerprint_stay(tf, image_folder, change):
    before = load(image_folder)
    order_before = order(before)
    was = fingerprint.fingerprint(before)
    victims = [image_folder / "train" / "dark" / "3.png", image_folder / "test" / "light" / "0.png"]
    for victim in victims:
        victim.unlink() if change == "deleted" else victim.write_bytes(
            (image_folder / "train" / "light" / "1.png").read_bytes()
        )
    data = load(image_folder, list(map(str, victims)))
    now = fingerprint.fingerprint(data)
    assert fingerprint.changes(was, now, sizes_may_differ=True) == []
    said = listen()
    data = missing_files.replace_missing(data)
    assert order(data) == order_before
    assert data.test_split.count == (7 if change == "deleted" else 8)
    assert len(said) == (2 if change == "deleted" else 0)
    if said:
        assert "training image" in said[0] and "test part" in said[1]


def test_another_change_is_noticed_all_the_same(tf, image_folder):
    before = fingerprint.fingerprint(load(image_folder))
    files = [image_folder / "train" / "dark" / f"{k}.png" for k in (3, 4)]
    for file in files:
        file.unlink()
    now = fingerprint.fingerprint(load(image_folder, [str(files[0])]))
    assert fingerprint.changes(before, now, sizes_may_differ=True) == ["train had 24 images and has 23"]


def test_a_stand_in_is_of_the_same_part(tf, image_folder):
    whole = image_folder / "train"
    victims = [whole / "dark" / f"{k}.png" for k in range(6)]
    before = load(whole, test_split=0.5)
    for victim in victims:
        victim.unlink()
    after = missing_files.replace_missing(load(whole, list(map(str, victims)), test_split=0.5))
    assert set(after.train_split.files) <= set(before.train_split.files)
    assert set(after.test_split.files) <= set(before.test_split.files)
    assert not {str(victim) for victim in victims} & {*after.train_split.files, *after.test_split.files}
    np.testing.assert_array_equal(after.train_split.labels, before.train_split.labels)


def test_a_class_without_any_training_image_is_refused(image_folder):
    victims = sorted((image_folder / "train" / "dark").iterdir())
    for victim in victims:
        victim.unlink()
    data = load(image_folder, list(map(str, victims)))
    with pytest.raises(UsageError, match="is gone"):
        missing_files.replace_missing(data)
