"""The measures of a classifier on labelled images."""

import shutil

import numpy as np
import pytest

from elastictrainer import RunError, UsageError
from elastictrainer.data import datasets, inspection
from elastictrainer.experiment.run_images import LabelledImages, load_images, load_run_images
from elastictrainer.experiment.scoring import Scores, score
from elastictrainer.models.predictor import Predictor
from run_builders import make_run

SIX = list("abcdef")


def by_brightness(images):
    """(n, 2): how dark and how light."""
    light = images.mean(axis=(1, 2, 3)) / 255
    return np.stack([1 - light, light], axis=1)


def classifier(names, function=by_brightness, size=8):
    return Predictor("the classifier", function, (None, size, size, 3), names)


def scores_of(probabilities, labels, names=SIX):
    return Scores(LabelledImages("d", "test", names, None), names, np.array(labels), np.array(probabilities))


@pytest.fixture
def scores():
    """Six images of three of six classes; the third and the fifth are taken for others."""
    labels, said = [0, 0, 1, 1, 2, 2], [0, 0, 0, 1, 5, 2]
    rows = np.full((6, 6), 0.05)
    rows[np.arange(6), said] = 0.75
    rows[2, 1] = 0.1
    rows[4, 2] = 0.0  # its class is the last of six
    rows[4, 5] = 0.8
    return scores_of(rows, labels)


def test_figures(scores):
    assert scores.accuracy == pytest.approx(4 / 6)
    assert scores.top_5_accuracy == pytest.approx(5 / 6)
    by_class = {row["class"]: row for row in scores.by_class}
    figures = {"precision": pytest.approx(2 / 3), "recall": 1.0, "f1": pytest.approx(0.8)}
    assert by_class["a"] == {"class": "a", "images": 2, **figures}
    assert by_class["f"]["images"] == by_class["f"]["precision"] == 0
    assert scores.confusion.sum() == 6 and scores.confusion[1].tolist() == [1, 1, 0, 0, 0, 0]
    summary = scores.summary()
    assert summary["macro_recall"] == pytest.approx((1 + 0.5 + 0.5) / 3), "of the classes that have images"
    assert (summary["images"], summary["classes"], summary["part"]) == (6, 6, "test")


def test_the_worst_mistakes_come_first_and_five_classes_have_no_top_5(scores):
    assert scores.worst(10).tolist() == [4, 2] and scores.worst(1).tolist() == [4]
    assert scores_of(np.eye(5), range(5), SIX[:5]).top_5_accuracy is None


def test_images_are_read_as_in_training_and_scored_by_the_names_of_their_classes(tf, image_folder):
    data = load_images(str(image_folder))
    assert str(data).startswith("8 test images")
    other_way = classifier(["light", "dark"], lambda images: by_brightness(images)[:, ::-1])
    for one in (classifier(["dark", "light"]), other_way, classifier(None)):
        assert score(one, data).accuracy == 1
    assert score(classifier(["light", "dark"]), data).accuracy == 0
    three = classifier(["cat", "dark", "light"], lambda x: np.insert(by_brightness(x), 0, 0.0, axis=1))
    assert score(three, data).accuracy == 1, "not all of its classes need to have images"


def test_a_class_that_is_not_known_is_named(tf, image_folder):
    with pytest.raises(UsageError, match="not know dark"):
        score(classifier(["grey", "light"]), load_images(str(image_folder)))
    for part in ("train", "test"):
        (image_folder / part / "dark").rename(image_folder / part / "black")
    with pytest.raises(UsageError, match="not know black"):
        score(classifier(["dark", "light"]), load_images(str(image_folder)))


def test_the_size_is_the_classifiers_or_the_users(tf, image_folder):
    data, any_size = load_images(str(image_folder)), classifier(None, size=None)
    with pytest.raises(UsageError, match="--image-size"):
        score(any_size, data)
    with pytest.raises(UsageError, match="--image-size 0"):
        score(any_size, data, 0)
    assert score(any_size, data, 12).accuracy == 1 == score(classifier(None), data, 8).accuracy
    with pytest.raises(UsageError, match="--image-size 12: .*8x8"):
        score(classifier(None), data, 12)


def test_a_damaged_image_is_named(tf, image_folder):
    victim = image_folder / "test" / "light" / "1.png"
    data = load_images(str(image_folder))
    victim.write_bytes(victim.read_bytes()[:-2000])
    with pytest.raises(RunError, match=r"light/1\.png"):
        score(classifier(None), data)


def test_a_part_is_chosen_and_data_without_parts_is_used_as_a_whole(image_folder):
    folder = str(image_folder)
    assert [load_images(folder, part).split.count for part in ("test", "train")] == [8, 24]
    with pytest.raises(UsageError, match="'val'.*train, test"):
        load_images(folder, "val")
    whole = load_images(folder + "/train")
    assert whole.split.count == 24 and whole.part == "" and str(whole) == "24 images of train"
    with pytest.raises(UsageError, match="--part"):
        load_images(folder + "/train", "test")


def test_a_run_is_tested_on_what_it_set_apart(image_folder, tmp_path):
    run = make_run(tmp_path / "run")
    settings = {"scheme": "full", "dataset": str(image_folder / "train"), "seed": 5}
    run.write_config({**settings, "test_split": 0.25, "validation_split": 0.25})
    data = datasets.load(settings["dataset"], 4, (8, 8), 5, None, 0.25, 0.25)
    for part, split in data.splits.items():
        assert load_run_images(run, part).image_names == split.files.tolist()
    assert load_run_images(run).image_names == data.test_split.files.tolist()
    run.write_config({**settings, "dataset": str(tmp_path / "gone")})
    run.write_environment({**run.environment(), "directory": "/some/where"})
    with pytest.raises(UsageError, match="/some/where"):
        load_run_images(run)


@pytest.fixture
def run_on(tmp_path):
    """Makes a run folder with the fingerprint of the data that it was started on; returns both."""

    def made(folder, **settings):
        run = make_run(tmp_path / "run")
        run.write_config({"scheme": "full", "dataset": str(folder), "seed": 0, **settings})
        data = datasets.load(str(folder), 4, (8, 8), **settings)
        about = inspection.fingerprint(data.class_names, data.splits)
        run.write_environment({**run.environment(), "data": about})
        return run, data

    return made


@pytest.mark.parametrize("change", ["added", "gone"])
def test_a_run_is_not_tested_on_images_drawn_anew(image_folder, run_on, change):
    """With an image more or less, --test-split sets others apart: most of them were trained on."""
    whole = image_folder / "train"
    run, _ = run_on(whole, test_split=0.25)
    trained = set(load_run_images(run, "train").image_names)
    tested = load_run_images(run).image_names
    if change == "added":
        shutil.copy(whole / "dark" / "1.png", whole / "dark" / "another.png")
    else:
        (whole / "dark" / "1.png").unlink()
    drawn_anew = datasets.load(str(whole), 4, (8, 8), test_split=0.25).test_split.files.tolist()
    assert trained & set(drawn_anew), "the reason for it"
    with pytest.raises(UsageError, match="is not what "):
        load_run_images(run)
    if change == "added":
        (whole / "dark" / "another.png").unlink()
        assert load_run_images(run).image_names == tested


@pytest.mark.parametrize("part", ["train", "test"])
def test_a_test_folder_may_change(image_folder, run_on, part):
    """Nothing is drawn from it."""
    run, data = run_on(image_folder)
    shutil.copy(image_folder / part / "dark" / "1.png", image_folder / part / "dark" / "another.png")
    assert load_run_images(run).split.count == data.test_split.count + (part == "test")


def test_a_collections_data_may_have_moved(tf, tmp_path, monkeypatch):
    run = make_run(tmp_path / "run")
    run.write_config({**run.config(), "dataset": "oxford_iiit_pet", "data_dir": "old"})
    asked = []

    def load_parts(name, data_dir, reading):
        asked.append(data_dir)
        raise UsageError("not here.")

    monkeypatch.setattr("elastictrainer.data.datasets.load_parts", load_parts)
    for given in (None, "new"):
        with pytest.raises(UsageError, match="not here"):
            load_run_images(run, None, given)
    assert asked == ["old", "new"]
