"""The user's own images: folders and tables, damaged ones, and how they are read and identified."""

import os
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("tensorflow")
from builders import spoil
from elastictrainer import UsageError
from elastictrainer.data import datasets
from elastictrainer.data.user_images import FileSplit, Reading, read_classes, read_folder, read_table
from elastictrainer.errors import UnreadableImages


def load(path, **options):
    return datasets.load(str(path), 2, (8, 8), **options)


def files(split):
    return set(split.files)


def test_the_seed_decides_which_images_of_every_class_are_for_testing(tf, class_folders):
    data = load(class_folders, validation_split=0.25)
    assert data.class_names == ("dark", "light")
    assert np.bincount(data.test_split.labels).tolist() == [3, 4] and np.bincount(
        data.train_split.labels
    ).tolist() == [8, 12]
    assert not files(data.train_split) & files(data.test_split)
    assert len(files(data.train_split) | files(data.test_split)) == 27
    assert files(load(class_folders, validation_split=0.25).test_split) == files(data.test_split)
    assert files(load(class_folders, validation_split=0.25, seed=1).test_split) != files(data.test_split)
    for images, labels in data.train(0):
        assert (np.mean(images, axis=(1, 2, 3)) > 120).tolist() == (labels.numpy() == 1).tolist()


def test_a_folder_that_is_called_as_a_known_data_set_is_asked_about(image_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    image_folder.rename("demo")
    for ask in (datasets.load_parts, datasets.count_classes):
        with pytest.raises(UsageError, match="Write ./demo for the folder"):
            ask("demo")
    assert datasets.load_parts("./demo")[0] == ["dark", "light"]


def test_the_number_of_classes_is_known_before_a_registered_data_set_is_there(image_folder):
    assert datasets.count_classes("stanford_dogs") == 120
    assert datasets.count_classes(str(image_folder)) == 2
    assert datasets.count_classes("demo") == 10


@pytest.mark.realdata
def test_cub100(tf, cub100):
    data = datasets.load(str(cub100), 4, (224, 224))
    assert len(data.class_names) == 100 and data.train_split.count == 2999 and data.test_split.count == 2903
    x, _ = next(data.train(0))
    assert x.shape == (4, 224, 224, 3) and 20 < x.numpy().mean() < 235


def write_table(folder, rows, columns="path,label"):
    table = folder / "images.csv"
    table.write_text("\n".join([columns, *rows]) + "\n")
    return table


def test_a_table_of_files(tf, class_folders):
    rows = [
        f"{p.relative_to(class_folders)},{p.parent.name} bird" for p in sorted(class_folders.glob("*/*.png"))
    ]
    data = load(write_table(class_folders, rows), validation_split=0.25)
    assert data.class_names == ("dark bird", "light bird") and data.test_split.count == 7
    split = load(
        write_table(
            class_folders,
            [f"{row},{'test' if k % 3 == 0 else 'train'}" for k, row in enumerate(rows)],
            "path,label,split",
        )
    )
    assert split.test_split.count == 9 and split.train_split.count == 18
    assert split.test_split.files.tolist() == [str(class_folders / row.split(",")[0]) for row in rows[::3]]
    images, labels = next(split.train(0))
    assert images.shape == (2, 8, 8, 3)


def table(*rows, columns="path,label"):
    """A function that writes that table into a folder."""
    return lambda folder: write_table(folder, rows, columns)


BAD = {
    "one image": (
        table("dark/train0.png,a", "dark/train1.png,b", "dark/train2.png,b"),
        {"validation_split": 0.2},
        "class 'a' has 1 image",
    ),
    "no column": (table("dark/train0.png,a", columns="file,label"), {}, "no column 'path'"),
    "no label": (table("dark/train0.png,a", "dark/train1.png,"), {}, "line 3: label is empty"),
    "no label after an empty line": (table("dark/train0.png,a", "", "x,"), {}, "line 4: label is empty"),
    "other split": (
        table("dark/train0.png,a,dev", columns="path,label,split"),
        {},
        "line 2: .*'dev'.*train, val, test",
    ),
    "no file": (
        table("dark/x.png,a", "dark/train1.png,b"),
        {"validation_split": 0.5},
        "dark/x.png.*No such file",
    ),
    "one class": (table("dark/train0.png,a"), {"test_split": 0.5}, "1 class"),
    "table without a split": (table("dark/train0.png,a", "dark/train1.png,b"), {}, "no test part"),
    "class in one part": (
        table("dark/train0.png,a,train", "dark/train1.png,b,test", columns="path,label,split"),
        {},
        "'a' .*train, test",
    ),
    "split twice": (
        lambda folder: write_table(
            folder,
            ["dark/train0.png,a,train"] * 2
            + ["dark/train1.png,b,test"] * 2
            + ["dark/train1.png,b,train", "dark/train0.png,a,test"],
            "path,label,split",
        ),
        {"test_split": 0.5},
        "leave out --test-split",
    ),
    "no table": (
        lambda folder: (folder / "x.csv").write_bytes(b"\xff\xfe\x00") and folder / "x.csv",
        {},
        "is not UTF-8 text",
    ),
    "arrays": (lambda folder: (folder / "x.npz").write_bytes(b"PK") and folder / "x.npz", {}, "Trainer.fit"),
    "no file at all": (table("x.png,a", "y.png,b"), {"test_split": 0.5}, "none of its 2 files is there"),
    "series": (table("dark/train0.png,a,1", columns="path,label,group"), {}, "add a column split"),
    "a comma in a path": (table("dark/a,b.png,a"), {}, "line 2: 3 fields.*quotation marks"),
    "an open quotation mark": (table('"dark/a.png,a', "dark/b.png,b"), {}, "over several lines"),
    "two columns of a name": (
        table("dark/train0.png,a,b", columns="path,label,Label"),
        {},
        "two columns 'lab",
    ),
    "two labels": (
        table("dark/train0.png,a", "dark/train1.png,b", "dark/train0.png,b"),
        {},
        "lines 2 and 4: .*",
    ),
    "another file": (lambda folder: folder / "dark" / "train0.png", {}, "neither a folder nor"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_data_is_refused_with_the_reason(tf, class_folders, case):
    make, options, message = BAD[case]
    with pytest.raises(UsageError, match=message):
        load(make(class_folders), **options)


def test_a_table_in_another_encoding_is_said_to_be(tmp_path):
    (tmp_path / "t.csv").write_bytes("path,label\nx.png,a\nä.png,1\n".encode("latin-1"))
    with pytest.raises(UsageError, match="t.csv.*UTF-8"):
        read_table(tmp_path / "t.csv", Reading())


AS_WRITTEN = {
    "by Windows": lambda text: text.replace("\n", "\r\n").encode("utf-8-sig"),
    "by an old Macintosh": lambda text: text.replace("\n", "\r").encode(),
    "with spaces": lambda text: text.replace(",", " , ").encode(),
    "with semicolons": lambda text: text.replace(",", ";").encode(),
    "for Excel alone": lambda text: ("sep=;\n" + text.replace(",", ";")).encode(),
    "as Unicode text": lambda text: text.replace(",", "\t").encode("utf-16"),
    "with backslashes": lambda text: text.replace("/", "\\").encode(),
    "with empty rows and columns": lambda text: (text.replace("\n", ",,\n") + ",,,\n\n").encode(),
    "with quotation marks": lambda text: re.sub("([^,\n]+)", r'"\1"', text).encode(),
    "with capitals": lambda text: text.replace("path,label", "Path,LABEL").encode(),
}


@pytest.mark.parametrize("how", AS_WRITTEN)
def test_tables_are_read_as_programs_write_them(tf, class_folders, how):
    files = sorted(class_folders.glob("*/*.png"))
    rows = [f"{file.parent.name}/{file.name},{file.parent.name}" for file in files]
    table = class_folders / "t.csv"
    table.write_bytes(AS_WRITTEN[how]("\n".join(["path,label", *rows]) + "\n"))
    names, parts = read_table(table, Reading())
    assert names == ["dark", "light"]
    assert [Path(file).resolve() for file in parts["all"].files] == [file.resolve() for file in files]


COMPOSED, DECOMPOSED = "caf\u00e9", "cafe\u0301"


def test_letters_with_accents_are_the_same_however_they_are_written(tf, image_folder):
    for part, name in (("train", COMPOSED), ("test", DECOMPOSED)):
        (image_folder / part / "dark").rename(image_folder / part / name)
    names, parts = read_folder(image_folder, Reading())
    assert names == [COMPOSED, "light"] and [parts[part].count for part in ("train", "test")] == [24, 8]
    (image_folder / "train" / DECOMPOSED).mkdir()
    (image_folder / "train" / COMPOSED / "0.png").rename(image_folder / "train" / DECOMPOSED / "0.png")
    assert np.bincount(read_folder(image_folder, Reading())[1]["train"].labels).tolist() == [12, 12]
    rows = [f"train/{COMPOSED}/{k}.png,{(COMPOSED, DECOMPOSED)[k % 2]}" for k in (1, 2)]
    (image_folder / "t.csv").write_text("\n".join(["path,label", *rows, f"train/{COMPOSED}/0.png,x"]))
    names, parts = read_table(image_folder / "t.csv", Reading())
    assert names == [COMPOSED, "x"] and all(map(os.path.exists, parts["all"].files))


def test_with_damaged_images_left_out_a_class_without_any_is_named(image_folder):
    rows = ["train/dark/0.png,a", "train/dark/gone.png,b"]
    (image_folder / "t.csv").write_text("\n".join(["path,label", *rows]))
    with pytest.raises(UsageError, match="class 'b' has no usable image"):
        read_table(image_folder / "t.csv", Reading(skip_damaged=True))


def noise(file, **options):
    pixels = np.random.default_rng(0).integers(0, 255, (40, 40, 3), np.uint8)
    Image.fromarray(pixels).save(file, **options)
    return file


def cut(file):
    """Half of what there was."""
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


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
        (lambda file: Image.new("I", (3, 3)).save(file, "tiff"), "32 bits or a sign"),
        (lambda file: Image.new("1", (20_000, 20_000)).save(file, "png"), "400000000 pixels"),
    ],
)
def test_what_is_no_image_is_named_with_the_reason(tmp_path, make, message):
    make(tmp_path / "bad.png")
    with pytest.raises(UsageError, match=rf"bad\.png \(.*{message}.*delete"):
        Reading().usable([tmp_path / "bad.png"])


@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.gif", "a.webp", "a.bmp", "a.tif", "progressive.jpg"])
def test_a_file_that_was_cut_short_is_found_before_training(tmp_path, name):
    options = {"progressive": True} if name[0] == "p" else {"lossless": True} if name == "a.webp" else {}
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
    again = read_folder(image_folder, Reading(left_out=reading.left_out))[1]
    assert again["train"].fingerprint()["contents"] == parts["train"].fingerprint()["contents"]


def test_a_class_of_damaged_images_alone_is_refused(image_folder):
    for file in (image_folder / "test" / "dark").iterdir():
        cut(file)
    with pytest.raises(UsageError, match="test/dark "):
        read_folder(image_folder, Reading(skip_damaged=True))


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
    for name in ("b.JPG", "a.png", "c.webp"):
        Image.new("RGB", (4, 4)).save(tmp_path / name)
    files = read_classes({"x": [tmp_path]}, Reading()).files
    assert [os.path.basename(file) for file in files] == ["a.png", "b.JPG", "c.webp"]
    with pytest.raises(UsageError, match="inner.* holds no image"):
        (tmp_path / "inner" / "d.png").unlink()
        read_classes({"x": [tmp_path / "inner"]}, Reading())


def test_hidden_folders_are_no_classes(image_folder):
    for part in ("train", "test"):
        for name in (".ipynb_checkpoints", "__MACOSX"):
            (image_folder / part / name).mkdir()
    (image_folder / "train" / "dark" / "._0.png").write_bytes(b"not an image")
    names, parts = read_folder(image_folder, Reading())
    assert names == ["dark", "light"] and parts["train"].count == 24


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
