"""The user's own images: class folders without a split, tables of files, arrays."""

import io
import zipfile

import numpy as np
import pytest

from elastictrainer import UsageError
from elastictrainer.data import datasets, user_data
from elastictrainer.data.reading import Reading


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


def test_arrays(tf, tmp_path):
    random = np.random.default_rng(0)
    x, y = random.integers(0, 256, (20, 9, 9, 3), dtype=np.uint8), np.arange(20).reshape(20, 1) % 4
    np.savez(tmp_path / "one.npz", x=x, y=y)
    np.savez(tmp_path / "two.npz", x_train=x[:12], y_train=y[:12], x_test=x[12:], y_test=y[12:])
    one, two = load(tmp_path / "one.npz", validation_split=0.4), load(tmp_path / "two.npz")
    assert one.class_names == two.class_names == ("0", "1", "2", "3")
    assert (
        (one.train_split.count, one.test_split.count)
        == (12, 8)
        == (two.train_split.count, two.test_split.count)
    )
    assert np.bincount(one.test_split.labels).tolist() == [2, 2, 2, 2]
    assert next(two.test())[0].shape == (8, 8, 8, 3)


def arrays(**given):
    def make(folder):
        np.savez(folder / "a.npz", **given)
        return folder / "a.npz"

    return make


def table(*rows, columns="path,label"):
    """A function that writes that table into a folder."""
    return lambda folder: write_table(folder, rows, columns)


IMAGES = np.full((4, 9, 9, 3), 7, np.uint8)
BAD = {
    "no split": (lambda folder: folder, {}, "--test-split 0.2"),
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
    "other arrays": (arrays(a=IMAGES, b=IMAGES), {}, "holds a, b"),
    "other shape": (arrays(x=IMAGES[..., :1], y=np.arange(4)), {}, "images \\(n, height, width, 3\\)"),
    "other count": (arrays(x=IMAGES, y=np.arange(3)), {}, "4 images, y 3 labels"),
    "other labels": (arrays(x=IMAGES, y=np.arange(4) / 2), {}, "class numbers from 0"),
    "scaled": (arrays(x=np.ones((4, 9, 9, 3)), y=np.arange(4)), {}, "multiply by 255"),
    "out of range": (arrays(x=IMAGES.astype(int) - 9, y=np.arange(4)), {}, "0..255"),
    "class in one array": (
        arrays(x_train=IMAGES, y_train=np.array([0, 1, 0, 1]), x_test=IMAGES, y_test=np.zeros(4, int)),
        {},
        "'1' .*train, test",
    ),
    "two sizes": (
        arrays(x_train=IMAGES, y_train=np.arange(4), x_test=IMAGES[:, :8], y_test=np.arange(4)),
        {},
        "x_test of \\(8, 9, 3\\)",
    ),
    "validation images without labels": (
        arrays(x_train=IMAGES, y_train=np.arange(4), x_test=IMAGES, y_test=np.arange(4), x_val=IMAGES),
        {},
        "expected: x_train, y_train, x_test and y_test, and perhaps x_val and y_val",
    ),
    "no arrays": (
        lambda folder: (folder / "x.npz").write_bytes(b"PK") and folder / "x.npz",
        {},
        "cannot read",
    ),
    "another file": (lambda folder: folder / "dark" / "train0.png", {}, "neither a folder nor"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_data_is_refused_with_the_reason(tf, class_folders, case):
    make, options, message = BAD[case]
    with pytest.raises(UsageError, match=message):
        load(make(class_folders), **options)


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_a_table_in_another_encoding_is_said_to_be(tmp_path, encoding):
    (tmp_path / "t.csv").write_bytes("path,label\nx.png,a\nä.png,1\n".encode(encoding))
    with pytest.raises(UsageError, match="t.csv.*UTF-8"):
        user_data.read_table(tmp_path / "t.csv", Reading())


def huge(shape):
    """An `.npy` file whose header claims that shape and that holds nothing."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
    return file.getvalue()


def archive(**members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        for name, content in members.items():
            made.writestr(f"{name}.npy", content)
    return file.getvalue()


def sound():
    file = io.BytesIO()
    np.savez_compressed(file, x=np.zeros((6, 4, 4, 3), np.uint8), y=np.arange(6) % 2)
    return file.getvalue()


@pytest.mark.parametrize(
    "content, said",
    [
        (b"", "as arrays"),
        (b"PK\x03\x04", "as arrays"),
        (b"text", "as arrays"),
        (sound()[:-40], "as arrays"),
        (sound()[:200] + b"\0" * 20 + sound()[220:], "as arrays"),
        (archive(x=b"no array", y=b"neither"), "holds no arrays; expected"),
        (archive(x=huge((9_000_000, 3000, 3000, 3)), y=huge((1,))), "MemoryError"),
    ],
    ids=["empty", "cut after its mark", "text", "cut", "overwritten", "no arrays", "243 TB"],
)
def test_damaged_arrays_are_told(tmp_path, content, said):
    (tmp_path / "d.npz").write_bytes(content)
    with pytest.raises(UsageError, match=f"d.npz.*{said}"):
        user_data.read_arrays(tmp_path / "d.npz")


def test_a_label_that_no_image_can_have_is_told_at_once(tmp_path):
    y = np.array([0, 1, 0, 3_000_000_000])
    np.savez(tmp_path / "d.npz", x=np.zeros((4, 4, 4, 3), np.uint8), y=y)
    with pytest.raises(UsageError, match="y has the label 3000000000"):
        user_data.read_arrays(tmp_path / "d.npz")
