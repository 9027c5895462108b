"""What is noted of a data set: its fingerprint, the changes it shows, remarks before training."""

import itertools
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("tensorflow")
from elastictrainer import UsageError
from elastictrainer.data import datasets, inspection, pictures
from elastictrainer.data.splits import ArraySplit

RENAMED = "images of {} were renamed, replaced or given another label"


def of(path, **options):
    data = datasets.load(str(path), 4, (16, 16), **options)
    return inspection.fingerprint(data.class_names, data.splits)


def image(path, grey=0, size=20):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (size, size), (grey,) * 3).save(path)


def test_the_same_data_has_the_same_fingerprint_wherever_it_lies(image_folder, tmp_path):
    before = of(image_folder)
    assert json.loads(json.dumps(before)) == before == of(image_folder)
    assert before["class_names"] == ["dark", "light"] and before["train"]["count"] == 24
    os.utime(min((image_folder / "train" / "dark").iterdir()), (1, 1))
    assert of(image_folder) == before, "times do not count"
    moved = tmp_path / "elsewhere" / "deep"
    shutil.copytree(image_folder, moved)
    assert of(moved) == before and inspection.changes(before, of(moved)) == []


def renamed(*pairs):
    """A function that renames folders or files in both parts of a folder of images."""

    def change(folder):
        for part, (old, new) in itertools.product(("train", "test"), pairs):
            (folder / part / old).rename(folder / part / new)

    return change


def add_class(folder):
    for split in ("train", "test"):
        image(folder / split / "grey" / "1.png")


UNLIKE = [RENAMED.format("train"), RENAMED.format("test")]


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda folder: image(folder / "train" / "dark" / "new.png"), ["train had 24 images and has 25"]),
        (
            renamed(("dark", "unlit")),
            ["the class 'dark' is gone", "the class 'unlit' is new", *UNLIKE],
        ),
        (
            add_class,
            ["the class 'grey' is new", "train had 24 images and has 25", "test had 8 images and has 9"],
        ),
        (renamed(("dark", "x"), ("light", "dark"), ("x", "light")), UNLIKE),
        (renamed(("dark/0.png", "dark/zzz.png")), UNLIKE),
        (lambda folder: image(folder / "train" / "dark" / "0.png", size=99), UNLIKE[:1]),
        (lambda folder: (folder / "test" / "light" / "0.png").unlink(), ["test had 8 images and has 7"]),
    ],
)
def test_what_changed_is_named(image_folder, change, said):
    before = of(image_folder)
    change(image_folder)
    assert inspection.changes(before, of(image_folder)) == said


def test_arrays_and_tables_are_known_by_content(tmp_path):
    x = np.random.default_rng(0).integers(0, 255, (12, 8, 8, 3), dtype=np.uint8)
    y = np.arange(12) % 2

    def arrays(x, y):
        return inspection.fingerprint(("a", "b"), {"train": ArraySplit(x, y)})

    before = arrays(x, y)
    assert arrays(x, y) == before
    assert inspection.changes(before, arrays(x[::-1], y)) and inspection.changes(before, arrays(x, 1 - y))

    for k in range(12):
        image(tmp_path / f"{k}.png")

    def table(labels):
        rows = [f"{k}.png,{label},{'test' if k < 4 else 'train'}" for k, label in enumerate(labels)]
        (tmp_path / "t.csv").write_text("\n".join(["path,label,split", *rows]))
        return of(tmp_path / "t.csv")

    before = table(["a", "b"] * 6)
    assert inspection.changes(before, table(["a", "b"] * 5 + ["b", "a"]))
    assert inspection.changes(before, table(["b", "a"] * 6))


def test_another_draw_of_the_test_images_is_another_data_set(image_folder):
    folder = image_folder / "train"
    before = of(folder, validation_split=0.25, seed=0)
    assert of(folder, validation_split=0.25, seed=0) == before
    assert inspection.changes(before, of(folder, validation_split=0.25, seed=1))


def test_the_validation_part_counts(image_folder):
    before = of(image_folder)
    assert "val" not in before
    shutil.copytree(image_folder / "test", image_folder / "val")
    with_it = of(image_folder)
    assert inspection.changes(before, with_it) == ["the validation part is new"]
    assert inspection.changes(with_it, before) == ["the validation part is gone"]
    min((image_folder / "val" / "dark").iterdir()).unlink()
    assert inspection.changes(with_it, of(image_folder)) == ["val had 8 images and has 7"]


def remarks_on(path):
    data = datasets.load(str(path), 4, (16, 16))
    return inspection.remarks(data.name, data.class_names, data.splits)


def test_nothing_is_said_of_data_in_order(image_folder):
    (image_folder / "train" / "dark" / ".DS_Store").touch()
    assert remarks_on(image_folder) == []


@pytest.mark.parametrize(
    "labels, said", [([0] * 5 + [1] * 4, ""), ([0] * 6 + [1] * 3, "3 (odd) to 6 (even)")]
)
def test_classes_of_which_one_has_twice_the_images_are_told(labels, said):
    split = ArraySplit(np.zeros((9, 2, 2, 3), np.uint8), np.array(labels))
    lines = inspection.remarks("some", ("even", "odd"), {"train": split})
    assert lines == ([f"training images by class: {said}"] if said else [])


def test_heic_pictures_that_nothing_can_read_are_named_with_what_would(image_folder, monkeypatch):
    for module in (inspection, pictures):
        monkeypatch.setattr(module, "SUFFIXES", (".jpg", ".png"))
    (image_folder / "train" / "dark" / "photo.HEIC").touch()
    (line,) = remarks_on(image_folder)
    assert "dark/photo.HEIC" in line and 'pip install ".[heic]"' in line


def test_what_lies_beside_the_images_is_named(image_folder):
    (image_folder / "train" / "dark" / "photo.raw").touch()
    (image_folder / "test" / "light" / "more").mkdir()
    (line,) = remarks_on(image_folder)
    assert line.startswith("not used: ") and "dark/photo.raw" in line and "light/more" in line
    shutil.copy(image_folder / "train" / "dark" / "1.png", image_folder / "train" / "beside.png")
    (line,) = remarks_on(image_folder)
    assert "4 more" not in line and "train/beside.png" in line


def test_parts_with_other_names_are_named(image_folder):
    image(image_folder / "Val" / "dark" / "1.png")
    image(image_folder / "loose.png")
    (image_folder / "labels.txt").touch()
    (line,) = remarks_on(image_folder)
    assert f"not used: {image_folder / 'Val'}, {image_folder / 'loose.png'}. " in line


def test_a_folder_of_classes_is_read_from_inside_and_what_commands_leave_there_is_no_class(
    image_folder, monkeypatch
):
    monkeypatch.chdir(image_folder / "train")
    for name in ("runs", "profiles"):
        Path(name).mkdir()
    data = datasets.load(".", 4, (16, 16), test_split=0.25)
    assert data.class_names == ("dark", "light")
    assert inspection.remarks(data.name, data.class_names, data.splits) == []


def test_what_would_count_were_it_not_hidden_is_named(image_folder):
    (image_folder / "train" / ".ipynb_checkpoints").mkdir()
    (image_folder / "test" / "light" / "._1.JPG").touch()
    (line,) = remarks_on(image_folder)
    assert line.startswith("not used: ") and ".ipynb_checkpoints. " in line and "._1.JPG, " in line


def test_images_in_both_parts_are_counted_and_named(image_folder):
    train, test = image_folder / "train" / "dark", image_folder / "test" / "dark"
    for k in range(3):
        shutil.copy(train / f"{k}.png", test / f"copy{k}.png")
    (line,) = remarks_on(image_folder)
    assert line.startswith("3 of 11 test images ")
    assert f"{test}/copy0.png is {train}/0.png" in line


def test_validation_images_are_compared_with_the_others(image_folder):
    shutil.copytree(image_folder / "test", image_folder / "val")
    for k in range(2):
        shutil.copy(image_folder / "train" / "dark" / f"{k}.png", image_folder / "val" / "dark" / f"c{k}.png")
    lines = remarks_on(image_folder)
    assert [line.split(" (")[0] for line in lines] == [
        "2 of 10 validation images are training images too",
        "8 of 8 test images are validation images too",
    ]
    assert "validation accuracy" in lines[0]


@pytest.mark.parametrize("name", ["two\nlines", "bell\a", "caf\udce9"])
def test_a_class_name_that_cannot_be_a_label_is_refused(image_folder, name):
    for split in ("train", "test"):
        (image_folder / split / "dark").rename(image_folder / split / name)
    with pytest.raises(UsageError, match="class name ") as refused:
        remarks_on(image_folder)
    assert repr(name) in str(refused.value)
