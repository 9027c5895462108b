"""Hugging Face's image sets: real pictures, as its `datasets` keeps them on a disk."""

import io
import sys

import numpy as np
import pytest
from PIL import Image

from elastictrainer import RunError, UsageError
from elastictrainer.data import datasets as ours
from elastictrainer.data.inspection import changes, fingerprint
from elastictrainer.data.user_images import FileSplit, Reading

FLOWERS = ("bluebell", "iris", "sunflower")


@pytest.fixture(scope="module")
def hub():
    return pytest.importorskip("datasets", reason="Hugging Face's datasets is not installed")


@pytest.fixture
def flowers(flowers12):
    """By part: files of three kinds of flowers (six of each to train on, three to test on), and labels."""
    files = {
        part: [file for kind in FLOWERS for file in sorted((flowers12 / part / kind).iterdir())[:count]]
        for part, count in {"train": 6, "test": 3}.items()
    }
    return {part: (found, [FLOWERS.index(f.parent.name) for f in found]) for part, found in files.items()}


@pytest.fixture
def table(hub, flowers):
    """Makes a part as a datasets.Dataset; its labels are numbers or, without `numbered`, words."""

    def made(part, numbered=True, image="image"):
        files, labels = flowers[part]
        kind = hub.ClassLabel(names=list(FLOWERS)) if numbered else hub.Value("string")
        cells = {image: list(map(str, files)), "label": labels if numbered else [FLOWERS[k] for k in labels]}
        return hub.Dataset.from_dict(cells, features=hub.Features({image: hub.Image(), "label": kind}))

    return made


def load(name, **options):
    return ours.load(f"hf:{name}", **{"batch_size": 2, "image_size": (32, 32), **options})


def pictures(split, size=(32, 32)):
    return np.stack([split.image(k, size) for k in range(split.count)])


@pytest.mark.realdata
@pytest.mark.parametrize("kind", ["saved", "parquet", "folder"])
def test_a_local_copy_gives_the_pictures_and_labels_of_the_files(tf, hub, table, flowers, tmp_path, kind):
    copy, cache = tmp_path / "copy", str(tmp_path / "cache")
    if kind == "saved":
        hub.DatasetDict({part: table(part) for part in flowers}).save_to_disk(str(copy))
    elif kind == "parquet":
        copy.mkdir()
        for part in flowers:
            table(part).to_parquet(str(copy / f"{part}-00000-of-00001.parquet"))
    else:
        for part, (files, _) in flowers.items():
            for file in files:
                (copy / part / file.parent.name).mkdir(parents=True, exist_ok=True)
                (copy / part / file.parent.name / file.name).write_bytes(file.read_bytes())
    data = load(copy, data_dir=cache)
    assert data.class_names == FLOWERS and ours.count_classes(f"hf:{copy}", data_dir=cache) == 3
    for part, split in {"train": data.train_split, "test": data.test_split}.items():
        np.testing.assert_array_equal(split.labels, flowers[part][1])
        files = FileSplit(np.array(list(map(str, flowers[part][0]))), split.labels)
        np.testing.assert_array_equal(pictures(split), pictures(files))
    assert sum(len(y) for _, y in data.train(0)) == 18
    assert fingerprint(data.class_names, data.splits)["test"]["count"] == 9


@pytest.mark.realdata
def test_labels_may_be_words_and_the_test_part_be_drawn(tf, table, tmp_path):
    table("train", numbered=False, image="photo").save_to_disk(str(tmp_path / "copy"))
    with pytest.raises(UsageError, match="no test part: --test-split 0.2"):
        load(tmp_path / "copy")
    data = load(tmp_path / "copy", validation_split=0.3)
    assert data.class_names == FLOWERS and np.bincount(data.test_split.labels).tolist() == [2, 2, 2]
    assert len({*data.train_split.rows, *data.test_split.rows}) == 18
    assert data.class_weights() == pytest.approx([1.0, 1.0, 1.0])


@pytest.mark.realdata
def test_another_label_or_picture_is_noticed(tf, hub, table, flowers, tmp_path):
    def saved(name):
        hub.DatasetDict({part: table(part) for part in flowers}).save_to_disk(str(tmp_path / name))
        data = load(tmp_path / name)
        return fingerprint(data.class_names, data.splits)

    before = saved("a")
    assert changes(before, saved("b")) == []
    flowers["train"][1][0] = 1
    assert changes(before, saved("c")) == ["images of train were renamed, replaced or given another label"]
    flowers["train"][1][0] = 0
    flowers["test"][0][:2] = flowers["test"][0][1::-1]
    assert changes(before, saved("d")) == ["images of test were renamed, replaced or given another label"]


@pytest.mark.realdata
def test_a_damaged_picture_is_named(tf, hub, table, tmp_path):
    whole = table("train").cast_column("image", hub.Image(decode=False))
    cells = whole[:]["image"]
    cells[4] = {"bytes": b"GIF89a no picture", "path": None}
    features = hub.Features({"image": hub.Image(), "label": whole.features["label"]})
    damaged = hub.Dataset.from_dict({"image": cells, "label": whole[:]["label"]}, features=features)
    hub.DatasetDict({"train": damaged, "test": table("test")}).save_to_disk(str(tmp_path / "copy"))
    with pytest.raises(RunError, match="1 .*copy, train, row 4"):
        list(load(tmp_path / "copy").train(0))


def test_what_is_wrong_with_a_copy_and_what_to_install_is_told(tf, hub, tmp_path, monkeypatch):
    hub.Dataset.from_dict({"text": ["a"], "label": ["b"]}).save_to_disk(str(tmp_path / "text"))
    with pytest.raises(UsageError, match="text, label"):
        load(tmp_path / "text")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="empty cannot"):
        load(tmp_path / "empty", data_dir=str(tmp_path / "cache"))
    (tmp_path / "text" / "state.json").write_text("{")
    with pytest.raises(UsageError, match="text cannot"):
        load(tmp_path / "text")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UsageError, match=r"install '\.\[hf\]'"):
        load("cifar10")


@pytest.fixture
def dots(hub, tmp_path):
    """Makes a copy in `tmp_path` of pictures of one colour, from label columns by part."""
    content = io.BytesIO()
    Image.new("RGB", (8, 8)).save(content, format="PNG")

    def made(name, kind, **parts):
        tables = {}
        for part, columns in parts.items():
            count = len(next(iter(columns.values())))
            cells = {"image": [{"bytes": content.getvalue(), "path": None}] * count, **columns}
            features = hub.Features({"image": hub.Image(), **dict.fromkeys(columns, kind)})
            tables[part] = hub.Dataset.from_dict(cells, features=features)
        hub.DatasetDict(tables).save_to_disk(str(tmp_path / name))
        return tmp_path / name

    return made


@pytest.mark.parametrize("numbered", [True, False])
def test_test_pictures_whose_labels_are_kept_back_are_not_tested_on(tf, hub, dots, numbered):
    kind = hub.ClassLabel(names=["a", "b"]) if numbered else hub.Value("string")
    known, kept_back = ([0, 1, 0, 1], [-1, -1]) if numbered else (["a", "b", "a", "b"], [None, None])
    parts = {"train": {"label": known}, "test": {"label": kept_back}}
    with pytest.raises(UsageError, match="no test part: --test-split 0.2"):
        load(dots("alone", kind, **parts))
    data = load(dots("more", kind, **parts, validation={"label": known[:2]}))
    assert data.val_split is None and data.test_split.labels.tolist() == [0, 1]
    for part in parts:  # a picture without a label is no class of its own
        some = {name: {"label": known} for name in parts}
        some[part] = {"label": [*known, kept_back[0]]}
        with pytest.raises(UsageError, match=f"some-{part}: 1 .*{part}"):
            load(dots(f"some-{part}", kind, **some))


def test_rows_without_an_image_or_with_several_labels_are_told(tf, hub, dots):
    several = {"label": [["a"], ["b", "a"]]}
    copy = dots("several", hub.Sequence(hub.Value("string")), train=several, test=several)
    with pytest.raises(UsageError, match="the column label has several values in a row"):
        load(copy)
    features = hub.Features({"image": hub.Image(), "label": hub.Value("string")})
    table = hub.Dataset.from_dict({"image": [None, None], "label": ["a", "b"]}, features=features)
    table.save_to_disk(str(copy.parent / "empty"))
    with pytest.raises(UsageError, match="2 rows of train have no image"):
        load(copy.parent / "empty", test_split=0.5)


def test_of_two_label_columns_one_is_to_be_named(tf, hub, dots):
    columns = {"fine": [0, 1, 1, 2], "coarse": [0, 0, 0, 1]}
    copy = dots("two", hub.ClassLabel(names=["a", "b", "c"]), train=columns, test=columns)
    with pytest.raises(UsageError, match="fine, coarse"):
        load(copy)
    with pytest.raises(UsageError, match="--label-column fin: .*fine, coarse"):
        load(copy, reading=Reading(label_column="fin"))
    for column, values in columns.items():
        assert load(copy, reading=Reading(label_column=column)).train_split.labels.tolist() == values
        assert ours.count_classes(f"hf:{copy}", reading=Reading(label_column=column)) == 3
    with pytest.raises(UsageError, match="--label-column fine .*hf:NAME.*demo"):
        ours.load_parts("demo", reading=Reading(label_column="fine"))
