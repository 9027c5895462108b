"""Images in files of their own: what is read, which are damaged, and how they are identified."""

import os

import numpy as np
from PIL import Image

from elastictrainer.data.file_split import FileSplit
from elastictrainer.data.image_folder import read_folder
from elastictrainer.data.reading import Reading


def test_images_are_read_by_number(image_folder):
    train = read_folder(image_folder, Reading())[1]["train"]
    for number, brightness in ((3, 60), (20, 190)):
        image = train.image(number, (16, 24))
        assert image.shape == (16, 24, 3) and abs(image.mean() - brightness) < 20


def test_the_first_frame_of_an_animation_is_read(tmp_path):
    frames = [Image.new("RGB", (4, 4), (grey,) * 3) for grey in (255, 0)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    split = FileSplit(np.array([str(tmp_path / "a.gif")]), np.array([0]))
    np.testing.assert_array_equal(split.image(0, (4, 4)), np.full((4, 4, 3), 255))


def test_damaged_images_are_named_after_a_failed_read(image_folder):
    parts = read_folder(image_folder, Reading())[1]
    train, test = parts["train"], parts["test"]
    assert test.find_corrupt() is None
    for number in (1, 5):
        with open(train.files[number], "r+b") as file:
            file.truncate(os.path.getsize(train.files[number]) - 2000)
    corrupt = train.find_corrupt()
    assert str(corrupt).startswith("2 unreadable image(s)") and corrupt.files == list(train.files[[1, 5]])
    assert all(name in str(corrupt) for name in corrupt.files)


def test_a_file_name_that_is_not_utf8_is_read(tmp_path):
    file = os.path.join(os.fsencode(tmp_path), b"caf\xe9.png")
    Image.new("RGB", (4, 4), "white").save(os.fsdecode(file), "png")
    split = FileSplit(np.array([os.fsdecode(file)]), np.array([0]))
    np.testing.assert_array_equal(split.image(0, (4, 4)), np.full((4, 4, 3), 255))


def test_files_named_from_here_and_from_the_root_have_one_identity(image_folder, monkeypatch):
    files = sorted((image_folder / "train" / "dark").iterdir())
    labels = np.zeros(len(files), np.int64)
    monkeypatch.chdir(image_folder)
    mixed = [str(file.relative_to(image_folder)) if k % 2 else str(file) for k, file in enumerate(files)]
    absolute = FileSplit(np.array(list(map(str, files))), labels).fingerprint()
    assert FileSplit(np.array(mixed), labels).fingerprint() == absolute
