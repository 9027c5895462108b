"""Folders of images: which files count, what is refused, and what is read from them."""

import os

import pytest

from elastictrainer import UsageError
from elastictrainer.data.image_folder import images_in, read_folder
from elastictrainer.data.reading import Reading


def test_classes_are_in_alphabetical_order_and_files_in_that_of_their_class(image_folder):
    names, parts = read_folder(image_folder, Reading())
    train, test = parts["train"], parts["test"]
    assert names == ["dark", "light"]
    assert train.labels.tolist() == [0] * 12 + [1] * 12 and test.labels.tolist() == [0] * 4 + [1] * 4
    assert [file.split(os.sep)[-3:] for file in test.files[[0, 7]]] == [
        ["test", "dark", "0.png"],
        ["test", "light", "3.png"],
    ]


def test_only_files_of_images_count_and_upper_case_endings_do(tmp_path):
    for name in ("b.JPG", "a.png", "notes.txt", "c.webp", "e.raw", "._a.png", "Thumbs.db"):
        (tmp_path / name).touch()
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "d.png").touch()
    assert [file.name for file in images_in(tmp_path, Reading())] == ["a.png", "b.JPG", "c.webp"]
    with pytest.raises(UsageError, match="inner.* holds no image"):
        (tmp_path / "inner" / "d.png").unlink()
        images_in(tmp_path / "inner", Reading())


def test_hidden_folders_are_no_classes(image_folder):
    for part in ("train", "test"):
        for name in (".ipynb_checkpoints", "__MACOSX"):
            (image_folder / part / name).mkdir()
    (image_folder / "train" / "dark" / "._0.png").write_bytes(b"not an image")
    names, parts = read_folder(image_folder, Reading())
    assert names == ["dark", "light"] and parts["train"].count == 24
