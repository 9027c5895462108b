"""Remarks on the data before training."""

import shutil

import numpy as np
import pytest

pytest.importorskip("tensorflow")
from elastictrainer import UsageError
from elastictrainer.data import datasets
from elastictrainer.data import image_folder as image_folder_module
from elastictrainer.data import remarks as module
from elastictrainer.data.image_data import ImageData
from elastictrainer.data.remarks import imbalance, remarks
from elastictrainer.data.splits import ArraySplit


def of(path, **options):
    return remarks(datasets.load(str(path), 4, (16, 16), **options))


def test_nothing_is_said_of_data_in_order(image_folder):
    (image_folder / "train" / "dark" / ".DS_Store").touch()
    assert of(image_folder) == []


@pytest.mark.parametrize(
    "labels, said", [([0] * 5 + [1] * 4, ""), ([0] * 6 + [1] * 3, "3 (odd) to 6 (even)")]
)
def test_classes_of_which_one_has_twice_the_images_are_told(labels, said):
    split = ArraySplit(np.zeros((9, 2, 2, 3), np.uint8), np.array(labels))
    line = imbalance(ImageData("some", ("even", "odd"), {"train": split}, 2, (2, 2)))
    assert line == (said and f"training images by class: {said}")


def test_heic_pictures_that_nothing_can_read_are_named_with_what_would(image_folder, monkeypatch):
    monkeypatch.setattr(module, "SUFFIXES", (".jpg", ".png"))
    (image_folder / "train" / "dark" / "photo.HEIC").touch()
    monkeypatch.setattr(image_folder_module, "SUFFIXES", (".jpg", ".png"))
    (line,) = of(image_folder)
    assert "dark/photo.HEIC" in line and 'pip install ".[heic]"' in line


def test_what_lies_beside_the_images_is_named(image_folder):
    (image_folder / "train" / "dark" / "photo.raw").touch()
    (image_folder / "test" / "light" / "more").mkdir()
    (line,) = of(image_folder)
    assert line.startswith("not used: ") and "dark/photo.raw" in line and "light/more" in line


def test_what_would_count_were_it_not_hidden_is_named(image_folder):
    (image_folder / "train" / ".ipynb_checkpoints").mkdir()
    (image_folder / "test" / "light" / "._1.JPG").touch()
    (line,) = of(image_folder)
    assert line.startswith("not used: ") and ".ipynb_checkpoints. " in line and "._1.JPG, " in line


def test_images_in_both_parts_are_counted_and_named(image_folder):
    for k in range(3):
        shutil.copy(
            image_folder / "train" / "dark" / f"{k}.png", image_folder / "test" / "dark" / f"copy{k}.png"
        )
    (line,) = of(image_folder)
    assert line.startswith("3 of 11 test images ")
    assert f"{image_folder}/test/dark/copy0.png is {image_folder}/train/dark/0.png" in line


def test_validation_images_are_compared_with_the_others(image_folder):
    shutil.copytree(image_folder / "test", image_folder / "val")
    for k in range(2):
        shutil.copy(image_folder / "train" / "dark" / f"{k}.png", image_folder / "val" / "dark" / f"c{k}.png")
    lines = of(image_folder)
    assert [line.split(" (")[0] for line in lines] == [
        "2 of 10 validation images are training images too",
        "8 of 8 test images are validation images too",
    ]
    assert "validation accuracy" in lines[0]


def test_unequal_classes_are_told(image_folder):
    for k in range(8):
        (image_folder / "train" / "dark" / f"{k}.png").unlink()
    assert of(image_folder) == ["training images by class: 4 (dark) to 12 (light)"]


def test_arrays_have_no_files_to_speak_of(tmp_path):
    x, y = np.zeros((12, 8, 8, 3), np.uint8), np.arange(12) % 2
    np.savez(tmp_path / "d.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    assert of(tmp_path / "d.npz") == []


@pytest.mark.parametrize("name", ["two\nlines", "bell\a", "caf\udce9"])
def test_a_class_name_that_cannot_be_a_label_is_refused(image_folder, name):
    for split in ("train", "test"):
        (image_folder / split / "dark").rename(image_folder / split / name)
    with pytest.raises(UsageError, match="class name ") as refused:
        of(image_folder)
    assert repr(name) in str(refused.value)
