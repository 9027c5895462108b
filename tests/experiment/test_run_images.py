"""The parts that a run takes over from the one before it: classes, images to train and to test on."""

import dataclasses
import shutil

import numpy as np
import pytest
from PIL import Image

from elastictrainer import UsageError
from elastictrainer.data import datasets, inspection
from elastictrainer.data.splits import ArraySplit
from elastictrainer.experiment import run_images
from elastictrainer.experiment.run_images import LabelledImages, load_run_images
from elastictrainer.experiment.settings import TrainSettings
from elastictrainer.runs.run_folder import RunFolder
from log_lines import listen

SIZE = (4, 4)


def images_of(folder, greys, train=6, test=2):
    """Class folders of images of one grey each, a little lighter from one to the next."""
    for part, count in {"train": train, "test": test}.items():
        for name, grey in greys.items():
            place = folder / part / name
            place.mkdir(parents=True)
            for k in range(count):
                Image.new("RGB", (8, 8), (grey + k,) * 3).save(place / f"{part}{k}.png")
    return folder


def settings_of(dataset, **more):
    return TrainSettings(model="demo", dataset=str(dataset), batch_size=2, **more)


def data_of(settings):
    return datasets.load(settings.dataset, 2, SIZE, settings.seed)


def finished(path, settings):
    """A run folder as `et-train` leaves it, without its model."""
    run, data, earlier = RunFolder(path), data_of(settings), run_images.earlier_run(settings)
    _, kept = run_images.take_over(settings, data)
    path.mkdir()
    run.write_config(dataclasses.asdict(settings))
    about = inspection.fingerprint(data.class_names, data.splits)
    run.write_environment({"class_names": run_images.class_names(earlier, data.class_names), "data": about})
    if kept is not None:
        kept.save(run.kept_path)
    return run


@pytest.fixture
def first(tf, tmp_path):
    """A run on two classes that keeps three images of each."""
    return finished(tmp_path / "a", settings_of(images_of(tmp_path / "one", {"x": 10, "y": 50}), keep=3))


@pytest.fixture
def going_on(first, tmp_path):
    """Settings of a run on one of these classes, looking different, and a new one."""
    new = images_of(tmp_path / "two", {"y": 150, "b": 200})
    return settings_of(new, init_from=str(first.path), keep=2)


def grey(pixels):
    """The grey of an image, to the ten below."""
    return int(np.mean(pixels)) // 10 * 10


def kept_in(folder):
    """By class, the greys of the files in `kept`, by their names."""
    found = {}
    for file in sorted(folder.glob("*/*.png")):
        with Image.open(file) as image:
            assert image.size == SIZE
            found.setdefault(file.parent.name, []).append((file.name[:3], grey(image)))
    return found


def mixed(settings, begun=None):
    """The data with what the earlier run adds, and what is kept; `begun`: of a run that is resumed."""
    return run_images.take_over(settings, data_of(settings), begun and begun.kept_path)


def trained_on(data):
    """By class, the sorted greys of the training images."""
    found = {}
    for k, label in enumerate(data.train_split.labels):
        found.setdefault(data.class_names[label], []).append(grey(data.train_split.image(k, SIZE)))
    return {name: sorted(greys) for name, greys in found.items()}


def test_old_classes_come_first_and_the_same_name_is_one_class(going_on):
    assert run_images.class_names(run_images.earlier_run(going_on), ("b", "y")) == ("x", "y", "b")
    alone = run_images.earlier_run(dataclasses.replace(going_on, keep=None))
    assert alone is None and run_images.class_names(alone, ("b", "y")) == ("b", "y")


def test_old_images_are_mixed_in_with_their_labels(tf, going_on, tmp_path):
    data, kept = mixed(going_on)
    assert data.class_names == ("x", "y", "b")
    assert trained_on(data) == {"x": [10] * 2, "y": [50] * 2 + [150] * 6, "b": [200] * 6}
    kept.save(tmp_path / "kept")
    assert kept_in(tmp_path / "kept") == {
        "x": [("old", 10)] * 2,
        "y": [("new", 150)] * 2 + [("old", 50)] * 2,
        "b": [("new", 200)] * 2,
    }


def test_a_class_of_few_images_weighs_less_but_each_of_them_more(tf, going_on):
    data, _ = mixed(going_on)
    weights, counts = np.array(run_images.class_weights(data)), np.bincount(data.train_split.labels)
    assert counts.tolist() == [2, 8, 6]
    np.testing.assert_allclose(weights**2 * counts, (weights**2 * counts)[0])
    assert (weights * counts).sum() == pytest.approx(counts.sum()) and weights[0] == 2 * weights[1] > 1


def test_old_test_images_are_told_apart(tf, going_on):
    data, kept = mixed(dataclasses.replace(going_on, keep=0))
    assert kept is None
    found = [(is_old, label) for _, labels, is_old in data.test() for label in labels.numpy().tolist()]
    assert sorted(found) == [(False, 1)] * 2 + [(False, 2)] * 2 + [(True, 0)] * 2 + [(True, 1)] * 2
    assert data.evaluated_count("test") == 8


def test_the_chain_goes_on(tf, going_on, tmp_path):
    shutil.rmtree(tmp_path / "one")
    second = finished(tmp_path / "b", going_on)
    shutil.rmtree(tmp_path / "two")
    new = images_of(tmp_path / "three", {"c": 90, "d": 120})
    third = settings_of(new, init_from=str(second.path), keep=2)
    said = listen()
    data, kept = mixed(third)
    kept.save(tmp_path / "kept")
    assert kept_in(tmp_path / "kept") == {
        "x": [("old", 10)] * 2,
        "y": [("old", 150), ("old", 50)],  # in turn: the latest run's, then those before it
        "b": [("old", 200)] * 2,
        "c": [("new", 90)] * 2,
        "d": [("new", 120)] * 2,
    }
    assert data.class_names == ("x", "y", "b", "c", "d") and not data.old_splits
    assert [line.split(":")[1] for line in said if "no old test images" in line] == [
        f" no old test images of {tmp_path / name}" for name in ("b", "a")
    ]


def test_a_resumed_run_has_the_same_images(tf, going_on, tmp_path):
    run = finished(tmp_path / "b", going_on)
    before = trained_on(mixed(going_on)[0])
    shutil.rmtree(tmp_path / "a" / "kept")
    shutil.rmtree(tmp_path / "one")
    data, _ = mixed(going_on, run)
    assert trained_on(data) == before


@pytest.mark.parametrize("change", ["", "gone", "replaced"])
def test_without_kept_images_those_of_the_data_are_taken_where_it_is_as_it_was(
    tf, first, going_on, tmp_path, change
):
    shutil.rmtree(first.kept_path)
    if not change:
        assert trained_on(mixed(going_on)[0])["x"] == [10, 10]
        return
    shutil.rmtree(tmp_path / "one")
    if change == "replaced":
        images_of(tmp_path / "one", {"x": 100, "y": 150}, train=7)
    with pytest.raises(UsageError, match="kept no images.*--keep 0"):
        mixed(going_on)


def test_a_damaged_kept_image_is_named(tf, first, going_on):
    (first.kept_path / "x" / "new-00000.png").write_bytes(b"no image")
    with pytest.raises(UsageError, match="new-00000.png.*Put it back"):
        mixed(going_on)


@pytest.mark.parametrize("name", ["../x", "a/b", "C:\\x", "..", "con?", "50 %", "end."])
def test_a_class_of_any_name_has_a_folder_of_its_own_inside(tf, tmp_path, name):
    split = ArraySplit(np.full((2, 4, 4, 3), 7, np.uint8), np.array([0, 1]))
    images = LabelledImages("d", "train", (name, "x"), split)
    run_images.KeptImages({"new": images}, SIZE).save(tmp_path / "kept")
    assert len(list((tmp_path / "kept").iterdir())) == 2 and len(list(tmp_path.rglob("*.png"))) == 2
    assert run_images._read_kept(tmp_path / "kept", (name, "x"), "*").split.labels.tolist() == [0, 1]


def test_an_evaluation_tells_old_from_new(tf, going_on, tmp_path):
    run = finished(tmp_path / "b", going_on)
    both = run_images.add_earlier_images(run, load_run_images(run))
    assert both.class_names == ["x", "y", "b"] and str(both).endswith("two and one")
    assert both.is_old.tolist() == [False] * 4 + [True] * 4
    assert both.split.labels.tolist() == [2, 2, 1, 1, 0, 0, 1, 1]
    assert len(both.image_names) == 8
    named = LabelledImages("other", "", ["y", "x"], both.split.splits[1])
    assert run_images.mark_old_classes(run, named).is_old.tolist() == [False, False, True, True]
    first = RunFolder(tmp_path / "a")
    alone = load_run_images(first)
    assert run_images.add_earlier_images(first, alone) is alone
    assert run_images.mark_old_classes(first, named) is named
