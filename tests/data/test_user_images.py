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
    counts = [np.bincount(split.labels).tolist() for split in (data.train_split, data.test_split)]
    assert counts == [[8, 12], [3, 4]]
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


def write_table(folder, *rows, columns="path,label"):
    table = folder / "images.csv"
    table.write_text("\n".join([columns, *rows]) + "\n")
    return table


def test_a_table_of_files(tf, class_folders):
    files = sorted(file.relative_to(class_folders) for file in class_folders.glob("*/*.png"))
    rows = [f"{file},{file.parent} bird" for file in files]
    data = load(write_table(class_folders, *rows), validation_split=0.25)
    assert data.class_names == ("dark bird", "light bird") and data.test_split.count == 7
    parts = [f"{row},{'test' if k % 3 == 0 else 'train'}" for k, row in enumerate(rows)]
    split = load(write_table(class_folders, *parts, columns="path,label,split"))
    assert split.test_split.count == 9 and split.train_split.count == 18
    assert split.test_split.files.tolist() == [str(class_folders / file) for file in files[::3]]
    images, labels = next(split.train(0))
    assert images.shape == (2, 8, 8, 3)


A, B, SPLIT = "dark/train0.png,a", "dark/train1.png,b", "path,label,split"


@pytest.mark.parametrize(
    "lines, options, message",
    [
        (("path,label", A, B, "dark/train2.png,b"), {"validation_split": 0.2}, "class 'a' has 1 image"),
        (("file,label", A), {}, "no column 'path'"),
        (("path,label", A, "dark/train1.png,"), {}, "line 3: label is empty"),
        (("path,label", A, "", "x,"), {}, "line 4: label is empty"),
        ((SPLIT, f"{A},dev"), {}, "line 2: .*'dev'.*train, val, test"),
        (("path,label", "dark/x.png,a", B), {"validation_split": 0.5}, "dark/x.png.*No such file"),
        (("path,label", A), {"test_split": 0.5}, "1 class"),
        (("path,label", A, B), {}, "no test part"),
        ((SPLIT, f"{A},train", f"{B},test"), {}, "'a' .*train, test"),
        (
            (SPLIT, f"{A},train", "dark/train2.png,a,test", f"{B},train", "dark/train3.png,b,test"),
            {"test_split": 0.5},
            "leave out --test-split",
        ),
        (("path,label", "x.png,a", "y.png,b"), {"test_split": 0.5}, "none of its 2 files is there"),
        (("path,label,group", f"{A},1"), {}, "add a column split"),
        (("path,label", "dark/a,b.png,a"), {}, "line 2: 3 fields.*quotation marks"),
        (("path,label", '"dark/a.png,a', "dark/b.png,b"), {}, "over several lines"),
        (("path,label,Label", f"{A},b"), {}, "two columns 'lab"),
        (("path,label", A, B, "dark/train0.png,b"), {}, "lines 2 and 4: .*"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_a_bad_table_is_refused_with_the_reason(tf, class_folders, lines, options, message):
    with pytest.raises(UsageError, match=message):
        load(write_table(class_folders, *lines[1:], columns=lines[0]), **options)


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("x.csv", b"\xff\xfe\x00", "is not UTF-8 text"),
        ("x.csv", "path,label\nx.png,a\nä.png,1\n".encode("latin-1"), "x.csv.*UTF-8"),
        ("x.npz", b"PK", "Trainer.fit"),
        ("x.png", b"", "neither a folder nor"),
    ],
)
def test_another_file_is_refused_with_the_reason(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=message):
        load(tmp_path / name)


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
    table = write_table(class_folders, *rows)
    table.write_bytes(AS_WRITTEN[how](table.read_text()))
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
    names, parts = read_table(write_table(image_folder, *rows, f"train/{COMPOSED}/0.png,x"), Reading())
    assert names == [COMPOSED, "x"] and all(map(os.path.exists, parts["all"].files))


def test_with_damaged_images_left_out_a_class_without_any_is_named(image_folder):
    table = write_table(image_folder, "train/dark/0.png,a", "train/dark/gone.png,b")
    with pytest.raises(UsageError, match="class 'b' has no usable image"):
        read_table(table, Reading(skip_damaged=True))
    for file in (image_folder / "test" / "dark").iterdir():
        cut(file)
    with pytest.raises(UsageError, match="test/dark "):
        read_folder(image_folder, Reading(skip_damaged=True))


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


def test_classes_are_in_alphabetical_order_files_in_that_of_their_class_and_none_is_hidden(image_folder):
    for part in ("train", "test"):
        for name in (".ipynb_checkpoints", "__MACOSX"):
            (image_folder / part / name).mkdir()
    (image_folder / "train" / "dark" / "._0.png").write_bytes(b"not an image")
    names, parts = read_folder(image_folder, Reading())
    train, test = parts["train"], parts["test"]
    assert names == ["dark", "light"]
    assert train.labels.tolist() == [0] * 12 + [1] * 12 and test.labels.tolist() == [0] * 4 + [1] * 4
    assert [os.path.relpath(file, image_folder) for file in test.files[[0, 7]]] == [
        "test/dark/0.png",
        "test/light/3.png",
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


def test_the_first_frame_of_an_animation_and_names_that_are_not_utf8_are_read(tmp_path):
    frames = [Image.new("RGB", (4, 4), (grey,) * 3) for grey in (255, 0)]
    for name in (b"a.gif", b"caf\xe9.gif"):
        file = os.fsdecode(os.path.join(os.fsencode(tmp_path), name))
        frames[0].save(file, "gif", save_all=True, append_images=frames[1:])
        split = FileSplit(np.array([file]), np.array([0]))
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


def test_files_named_from_here_and_from_the_root_have_one_identity(image_folder, monkeypatch):
    files = sorted((image_folder / "train" / "dark").iterdir())
    labels = np.zeros(len(files), np.int64)
    monkeypatch.chdir(image_folder)
    mixed = [str(file.relative_to(image_folder)) if k % 2 else str(file) for k, file in enumerate(files)]
    absolute = FileSplit(np.array(files, str), labels).fingerprint()
    assert FileSplit(np.array(mixed), labels).fingerprint() == absolute
