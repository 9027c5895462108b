"""The parts that a run takes over from the one before it: classes, images to train and to test on."""

import dataclasses
import shutil

import numpy as np
import pytest

from elastictrainer import UsageError
from elastictrainer.data import datasets, fingerprint, kept_images
from elastictrainer.experiment import earlier_data, keeping
from elastictrainer.experiment.labelled_images import LabelledImages, load_run_images
from elastictrainer.experiment.settings import TrainSettings
from elastictrainer.runs.run_folder import RunFolder
from log_lines import listen

SIZE = (4, 4)


def images_of(folder, greys, train=6, test=2):
    """Class folders of images of one grey each, a little lighter from one to the next."""
    from PIL import Image

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
    return dataclasses.replace(datasets.load(settings.dataset, 2, SIZE, settings.seed), image_size=SIZE)


def finished(path, settings):
    """A run folder as `et-train` leaves it, without its model."""
    run, data = RunFolder(path), data_of(settings)
    kept = keeping.images_to_keep(settings, run, False, data)
    path.mkdir()
    names = keeping.class_names(settings, data)
    run.write_config(dataclasses.asdict(settings))
    run.write_environment({"class_names": names, "data": fingerprint.fingerprint(data)})
    if kept is not None:
        kept.save(run.kept_path)
    return run


@pytest.fixture
def first(tf, tmp_path):
    """A run on two classes that stores three images of each."""
    return finished(tmp_path / "a", settings_of(images_of(tmp_path / "one", {"x": 10, "y": 50}), keep=3))


@pytest.fixture
def going_on(first, tmp_path):
    """Settings of a run on one of these classes, looking different, and a new one."""
    new = images_of(tmp_path / "two", {"y": 150, "b": 200})
    return settings_of(new, init_from=str(first.path), keep=2)


def greys(images):
    """By class name and age, the greys of kept images, to the ten below."""
    found = {}
    for image, label, age in zip(images.images, images.labels, images.ages):
        found.setdefault((images.class_names[label], int(age)), []).append(int(image.mean()) // 10 * 10)
    return found


def test_old_classes_come_first_and_the_same_name_is_one_class(going_on):
    data = data_of(going_on)
    assert (
        keeping.class_names(going_on, data) == ("x", "y", "b") and keeping.earlier_class_count(going_on) == 2
    )
    alone = dataclasses.replace(going_on, keep=None)
    assert keeping.class_names(alone, data) == data.class_names == ("b", "y")
    assert keeping.earlier_class_count(alone) == 0


def test_old_images_are_mixed_in_with_their_labels(tf, first, going_on, tmp_path):
    data = data_of(going_on)
    kept = keeping.images_to_keep(going_on, RunFolder(tmp_path / "b"), False, data)
    old, new = {("x", 1): [10, 10], ("y", 1): [50, 50]}, {("y", 0): [150, 150], ("b", 0): [200, 200]}
    assert greys(kept) == {**old, **new}
    mixed = keeping.add_earlier(going_on, data, kept)
    assert mixed.class_names == ("x", "y", "b")
    examples = mixed.train_split.ordered()(None).map(mixed.train_split.decoder(SIZE))
    seen = sorted(
        (mixed.class_names[int(label)], int(image.numpy().mean()) // 10 * 10) for image, label in examples
    )
    assert seen == sorted([("b", 200)] * 6 + [("y", 150)] * 6 + [("x", 10)] * 2 + [("y", 50)] * 2)


def test_a_class_of_few_images_weighs_less_but_each_of_them_more(tf, going_on, tmp_path):
    data = data_of(going_on)
    kept = keeping.images_to_keep(going_on, RunFolder(tmp_path / "b"), False, data)
    mixed = keeping.add_earlier(going_on, data, kept)
    weights = np.array(keeping.class_weights(mixed))
    counts = np.bincount(mixed.train_split.labels)
    assert counts.tolist() == [2, 8, 6]
    np.testing.assert_allclose(weights**2 * counts, (weights**2 * counts)[0])
    assert (weights * counts).sum() == pytest.approx(counts.sum()) and weights[0] == 2 * weights[1] > 1


def test_old_test_images_are_told_apart(tf, going_on, tmp_path):
    data = keeping.add_earlier(going_on, data_of(going_on), None)
    found = [(is_old, label) for _, labels, is_old in data.test() for label in labels.numpy().tolist()]
    assert sorted(found) == [
        (False, 1),
        (False, 1),
        (False, 2),
        (False, 2),
        (True, 0),
        (True, 0),
        (True, 1),
        (True, 1),
    ]
    assert data.evaluated_count("test") == 8


def test_the_chain_goes_on(tf, first, going_on, tmp_path):
    shutil.rmtree(tmp_path / "one")
    second = finished(tmp_path / "b", going_on)
    shutil.rmtree(tmp_path / "two")
    third = settings_of(
        images_of(tmp_path / "three", {"c": 90, "d": 120}), init_from=str(second.path), keep=2
    )
    said = listen()
    data = data_of(third)
    kept = keeping.images_to_keep(third, RunFolder(tmp_path / "c"), False, data)
    assert greys(kept) == {
        ("x", 2): [10, 10],
        ("y", 2): [50],
        ("y", 1): [150],
        ("b", 1): [200, 200],
        ("c", 0): [90, 90],
        ("d", 0): [120, 120],
    }
    mixed = keeping.add_earlier(third, data, kept)
    assert mixed.class_names == ("x", "y", "b", "c", "d") and not mixed.old_splits
    assert [line.split(":")[1] for line in said if "no old test images" in line] == [
        f" no old test images of {tmp_path / name}" for name in ("b", "a")
    ]


def test_a_resumed_run_has_the_same_images(tf, going_on, tmp_path):
    run = finished(tmp_path / "b", going_on)
    written = kept_images.read(run.kept_path)
    shutil.rmtree(tmp_path / "a")
    again = keeping.images_to_keep(
        going_on, run, True, data_of(dataclasses.replace(going_on, init_from=None))
    )
    np.testing.assert_array_equal(again.images, written.images)


def test_without_stored_images_those_of_the_data_are_taken(tf, first, going_on, tmp_path):
    first.kept_path.unlink()
    kept = keeping.images_to_keep(going_on, RunFolder(tmp_path / "b"), False, data_of(going_on))
    assert greys(kept)["x", 1] == [10, 10]
    more = dataclasses.replace(going_on, keep=5)
    assert (
        len(greys(keeping.images_to_keep(more, RunFolder(tmp_path / "b"), False, data_of(more)))["x", 1]) == 5
    )


@pytest.mark.parametrize("change", ["gone", "replaced"])
def test_data_that_is_not_there_as_it_was_is_not_taken(tf, first, going_on, tmp_path, change):
    shutil.rmtree(tmp_path / "one")
    if change == "replaced":
        images_of(tmp_path / "one", {"x": 100, "y": 150}, train=7)
    said = listen()
    five, run = dataclasses.replace(going_on, keep=5), RunFolder(tmp_path / "b")
    kept = keeping.images_to_keep(five, run, False, data_of(five))
    assert greys(kept)["x", 1] == [10] * 3 and "--keep 5" in said[0]
    first.kept_path.unlink()
    with pytest.raises(UsageError, match="stored no images.*--keep 0"):
        keeping.images_to_keep(going_on, run, False, data_of(going_on))


def test_stored_images_of_other_classes_are_refused(tf, first, going_on, tmp_path):
    first.write_environment({**first.environment(), "class_names": ["x", "z"]})
    with pytest.raises(UsageError, match="kept.npz"):
        keeping.images_to_keep(going_on, RunFolder(tmp_path / "b"), False, data_of(going_on))


def test_stored_images_of_another_size_are_refused(tf, first, going_on, tmp_path):
    data = dataclasses.replace(data_of(going_on), image_size=(8, 8))
    with pytest.raises(UsageError, match="kept.npz .*4x4"):
        keeping.images_to_keep(going_on, RunFolder(tmp_path / "b"), False, data)


def test_an_evaluation_tells_old_from_new(tf, going_on, tmp_path):
    run = finished(tmp_path / "b", going_on)
    both = earlier_data.add_earlier_images(run, load_run_images(run))
    assert both.class_names == ["x", "y", "b"] and str(both).endswith("two and one")
    assert both.is_old.tolist() == [False] * 4 + [True] * 4
    assert both.split.labels.tolist() == [2, 2, 1, 1, 0, 0, 1, 1]
    assert len(both.image_names) == 8
    named = LabelledImages("other", "", ["y", "x"], both.split.splits[1])
    assert earlier_data.mark_old_classes(run, named).is_old.tolist() == [False, False, True, True]
    first = RunFolder(tmp_path / "a")
    alone = load_run_images(first)
    assert earlier_data.add_earlier_images(first, alone) is alone
    assert earlier_data.mark_old_classes(first, named) is named
