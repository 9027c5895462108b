"""The image files that are used: damaged ones are refused or left out."""

import os

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("tensorflow")
from elastictrainer import UsageError
from elastictrainer.data import datasets
from elastictrainer.data.image_folder import read_folder
from elastictrainer.data.reading import Reading, abbreviated
from elastictrainer.errors import UnreadableImages


def noise(file, **options):
    pixels = np.random.default_rng(0).integers(0, 255, (40, 40, 3), np.uint8)
    Image.fromarray(pixels).save(file, **options)
    return file


def cut(file):
    """Half of what there was."""
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def spoil(file):
    """A PNG whose pixels are damaged and whose end is whole."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 255
    file.write_bytes(content)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda file: None, "No such file"),
        (lambda file: file.touch(), "empty"),
        (lambda file: file.mkdir(), "not a regular file"),
        (os.mkfifo, "not a regular file"),
        (lambda file: file.write_text("text"), "not an image"),
        (lambda file: Image.new("RGB", (3, 3)).save(file, "ppm"), "PPM inside"),
        (lambda file: Image.new("F", (3, 3)).save(file, "tiff"), "not whole numbers"),
        (lambda file: Image.new("1", (20_000, 20_000)).save(file, "png"), "400000000 pixels"),
    ],
)
def test_what_is_no_image_is_named_with_the_reason(tmp_path, make, message):
    make(tmp_path / "bad.png")
    with pytest.raises(UsageError, match=rf"bad\.png \(.*{message}.*delete"):
        Reading().usable([tmp_path / "bad.png"])


@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.gif", "a.webp", "progressive.jpg"])
def test_a_file_that_was_cut_short_is_found_before_training(tmp_path, name):
    options = {"progressive": True} if name[0] == "p" else {"lossless": True} if name[-1] == "p" else {}
    file = noise(tmp_path / name, **options)
    whole = file.read_bytes()
    assert Reading().usable([file]).all()
    for behind in (b"\0" * 100, b"a trailer of the camera's"):
        file.write_bytes(whole + behind)
        assert Reading().usable([file]).all(), "what follows the end is no damage"
    file.write_bytes(whole)
    cut(file)
    with pytest.raises(UnreadableImages, match=f"{name} \\(") as caught:
        Reading().usable([file])
    assert caught.value.files == [str(file)]
    assert "{{" not in str(caught.value) and "device:" not in str(caught.value)


def test_damaged_images_are_left_out_if_asked(image_folder):
    first, second = (image_folder / "train" / "dark" / f"{k}.png" for k in (2, 5))
    spoil(first)
    cut(second)
    (image_folder / "test" / "light" / "1.png").write_text("text")
    with pytest.raises(UnreadableImages, match=r"1 unreadable.*5\.png"):
        datasets.load(str(image_folder), 4, (8, 8))
    reading = Reading(skip_damaged=True)
    names, parts = read_folder(image_folder, reading)
    assert parts["train"].count == 22 and parts["test"].count == 7
    assert np.bincount(parts["train"].labels).tolist() == [10, 12]
    assert len(reading.left_out) == 3 and {str(first), str(second)} < set(reading.left_out)
    again = read_folder(image_folder, Reading(**reading.record()))[1]
    assert again["train"].fingerprint()["contents"] == parts["train"].fingerprint()["contents"]


def test_a_table_leaves_them_out_too(image_folder):
    cut(image_folder / "train" / "dark" / "2.png")
    rows = [f"train/{label}/{k}.png,{label}" for k in range(4) for label in ("dark", "light")]
    (image_folder / "t.csv").write_text("\n".join(["path,label", *rows]))
    data = datasets.load(
        str(image_folder / "t.csv"), 2, (8, 8), test_split=0.3, reading=Reading(skip_damaged=True)
    )
    assert data.train_split.count + data.test_split.count == 7


def test_a_class_of_damaged_images_alone_is_refused(image_folder):
    for file in (image_folder / "test" / "dark").iterdir():
        cut(file)
    with pytest.raises(UsageError, match="test/dark "):
        read_folder(image_folder, Reading(skip_damaged=True))


def test_long_lists_are_abbreviated():
    assert abbreviated(["a"]) == "a" and abbreviated(list("abc")) == "a, b, c"
    assert abbreviated(list("abcde")) == "a, b, c and 2 more"
