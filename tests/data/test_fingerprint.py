"""The fingerprint of a run's data, and the changes it shows."""

import json
import os
import shutil

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("tensorflow")
from elastictrainer.data import datasets, fingerprint

RENAMED = "images of {} were renamed, replaced or given another label"


def of(path, **options):
    return fingerprint.fingerprint(datasets.load(str(path), 4, (16, 16), **options))


def image(path, grey=0, size=20):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (size, size), (grey,) * 3).save(path)


def test_the_same_data_has_the_same_fingerprint_wherever_it_lies(image_folder, tmp_path):
    before = of(image_folder)
    assert json.loads(json.dumps(before)) == before == of(image_folder)
    assert before["class_names"] == ["dark", "light"] and before["train"]["count"] == 24
    moved = tmp_path / "elsewhere" / "deep"
    shutil.copytree(image_folder, moved)
    assert of(moved) == before and fingerprint.changes(before, of(moved)) == []


def add(folder):
    image(folder / "train" / "dark" / "new.png")


def rename_class(folder):
    for split in ("train", "test"):
        (folder / split / "dark").rename(folder / split / "unlit")


def swap_classes(folder):
    for split in ("train", "test"):
        for a, b in (("dark", "x"), ("light", "dark"), ("x", "light")):
            (folder / split / a).rename(folder / split / b)


def add_class(folder):
    for split in ("train", "test"):
        image(folder / split / "grey" / "1.png")


def rename_image(folder):
    first = min((folder / "test" / "dark").iterdir())
    first.rename(first.with_name("zzz.png"))


def replace_image(folder):
    image(min((folder / "train" / "dark").iterdir()), size=99)


def remove_image(folder):
    min((folder / "test" / "light").iterdir()).unlink()


@pytest.mark.parametrize(
    "change, said",
    [
        (add, ["train had 24 images and has 25"]),
        (
            rename_class,
            [
                "the class 'dark' is gone",
                "the class 'unlit' is new",
                RENAMED.format("train"),
                RENAMED.format("test"),
            ],
        ),
        (
            add_class,
            ["the class 'grey' is new", "train had 24 images and has 25", "test had 8 images and has 9"],
        ),
        (rename_image, [RENAMED.format("test")]),
        (replace_image, [RENAMED.format("train")]),
        (remove_image, ["test had 8 images and has 7"]),
    ],
)
def test_what_changed_is_named(image_folder, change, said):
    before = of(image_folder)
    change(image_folder)
    assert fingerprint.changes(before, of(image_folder)) == said


def test_swapped_class_folders_are_noticed(image_folder):
    before = of(image_folder)
    swap_classes(image_folder)
    assert fingerprint.changes(before, of(image_folder))


def test_times_do_not_count(image_folder):
    before = of(image_folder)
    os.utime(min((image_folder / "train" / "dark").iterdir()), (1, 1))
    assert of(image_folder) == before


def test_arrays_and_tables_are_known_by_content(tmp_path):
    x = np.random.default_rng(0).integers(0, 255, (12, 8, 8, 3), dtype=np.uint8)
    y = np.arange(12) % 2

    def arrays(x, y):
        np.savez(tmp_path / "d.npz", x_train=x, y_train=y, x_test=x[:4], y_test=y[:4])
        return of(tmp_path / "d.npz")

    before = arrays(x, y)
    assert arrays(x, y) == before
    assert fingerprint.changes(before, arrays(x[::-1], y)) and fingerprint.changes(before, arrays(x, 1 - y))

    for k in range(12):
        image(tmp_path / f"{k}.png")

    def table(labels):
        rows = [f"{k}.png,{label},{'test' if k < 4 else 'train'}" for k, label in enumerate(labels)]
        (tmp_path / "t.csv").write_text("\n".join(["path,label,split", *rows]))
        return of(tmp_path / "t.csv")

    before = table(["a", "b"] * 6)
    assert fingerprint.changes(before, table(["a", "b"] * 5 + ["b", "a"]))
    assert fingerprint.changes(before, table(["b", "a"] * 6))


def test_another_draw_of_the_test_images_is_another_data_set(image_folder):
    folder = image_folder / "train"
    before = of(folder, validation_split=0.25, seed=0)
    assert of(folder, validation_split=0.25, seed=0) == before
    assert fingerprint.changes(before, of(folder, validation_split=0.25, seed=1))


def test_the_validation_part_counts(image_folder):
    before = of(image_folder)
    assert "val" not in before
    shutil.copytree(image_folder / "test", image_folder / "val")
    with_it = of(image_folder)
    assert fingerprint.changes(before, with_it) == ["the validation part is new"]
    assert fingerprint.changes(with_it, before) == ["the validation part is gone"]
    min((image_folder / "val" / "dark").iterdir()).unlink()
    assert fingerprint.changes(with_it, of(image_folder)) == ["val had 8 images and has 7"]
