"""Data sets by name, and image folders."""

import shutil

import numpy as np
import pytest

from elastictrainer import RunError, UsageError
from elastictrainer.data import datasets


def load(name, **options):
    return datasets.load(str(name), **{"batch_size": 4, "image_size": (32, 32), **options})


def labels_of(batches):
    return np.concatenate([y.numpy() for _, y in batches])


def test_image_folder(tf, image_folder):
    data = load(image_folder, batch_size=5)
    assert data.class_names == ("dark", "light") and data.steps_per_epoch == 4
    x, y = next(data.train(0))
    assert x.shape == (5, 32, 32, 3) and x.dtype == tf.float32 and y.shape == (5,)
    assert all((image.mean() > 125) == label for image, label in zip(x.numpy(), y.numpy()))
    assert labels_of(data.test()).tolist() == [0] * 4 + [1] * 4


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda f: (f / "train" / "dark" / "0.png").write_bytes(b""), r"0\.png \(empty\)"),
        (lambda f: (f / "test" / "dark" / "1.png").write_text("not an image"), r"1\.png \(not an image\)"),
        (lambda f: shutil.rmtree(f / "test" / "light"), r"test lacks light"),
        (lambda f: shutil.rmtree(f / "train" / "light"), r"train lacks light"),
        (lambda f: shutil.rmtree(f / "test"), r"has no test part: --test-split 0.2"),
        (lambda f: shutil.rmtree(f / "train"), r"no folder 'train'"),
        (lambda f: [p.unlink() for p in (f / "test" / "dark").iterdir()], r"dark holds no image"),
        (lambda f: [shutil.rmtree(f / s / "dark") for s in ("train", "test")], r"at least two"),
    ],
)
def test_malformed_folder_is_named(tf, image_folder, damage, message):
    damage(image_folder)
    with pytest.raises(UsageError, match=message):
        load(image_folder)


def test_an_image_that_is_damaged_behind_its_header_is_named_when_it_is_read(tf, image_folder):
    victim = image_folder / "train" / "light" / "3.png"
    data = load(image_folder)
    victim.write_bytes(victim.read_bytes()[:-2000])
    with pytest.raises(RunError, match=r"light/3\.png") as caught:
        list(data.train(0))
    assert caught.value.files == [str(victim)] and "{{" not in str(caught.value)


def test_unknown_name_lists_the_valid_ones(tf):
    with pytest.raises(UsageError, match="'stanford_dogs'"):
        load("stanford_dog")


def test_the_number_of_classes_is_known_before_a_registered_data_set_is_there(image_folder):
    assert datasets.count_classes("stanford_dogs") == 120
    assert datasets.count_classes(str(image_folder)) == 2
    assert datasets.count_classes("demo") == 10


@pytest.mark.realdata
def test_cub100(tf, cub100):
    data = load(cub100, image_size=(224, 224))
    assert len(data.class_names) == 100 and data.train_split.count == 2999 and data.test_split.count == 2903
    x, _ = next(data.train(0))
    assert x.shape == (4, 224, 224, 3) and 20 < x.numpy().mean() < 235
