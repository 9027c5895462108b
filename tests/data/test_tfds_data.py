"""Real records on disk, written by tensorflow-datasets itself for a small data set."""

import functools

import numpy as np
import pytest

from builders import tiny_pets
from elastictrainer import UsageError
from elastictrainer.data import datasets


def load(name, **options):
    return datasets.load(str(name), **{"batch_size": 4, "image_size": (32, 32), **options})


def labels_of(batches):
    return np.concatenate([y.numpy() for _, y in batches])


@pytest.fixture(scope="module")
def prepared(tf, tmp_path_factory):
    """A function that returns a builder of tiny pets with those options, whose records are written once."""

    @functools.lru_cache(None)
    def made(**options):
        builder = tiny_pets(tmp_path_factory.mktemp("pets"), **options)
        builder.download_and_prepare()
        return builder

    return made


@pytest.fixture
def asked(prepared, monkeypatch):
    """What tensorflow-datasets is asked for, by name and folder: it gives tiny pets."""
    import tensorflow_datasets as tfds

    asked = []
    monkeypatch.setattr(
        tfds, "builder", lambda name, data_dir: (asked.append((name, data_dir)), prepared())[1]
    )
    return asked


def test_a_folder_that_a_builder_has_prepared(prepared):
    folder = prepared(second="validation").data_dir
    data = load(folder)
    assert data.class_names == ("cat", "dog") and data.train_split.count == 11 and data.test_split.count == 5
    x, y = next(data.train(0))
    assert all((image.mean() > 115) == label for image, label in zip(x.numpy(), y.numpy()))
    assert data.class_weights() == pytest.approx([11 / (2 * 6), 11 / (2 * 5)])
    with pytest.raises(UsageError, match="test part"):
        load(folder, test_split=0.2)


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"second": "unlabelled"}, "no test part: --test-split"),
        ({"label": "breed"}, "features breed, image"),
        ({"labelled": False}, "no test part: --test-split 0.2"),
    ],
)
def test_a_prepared_folder_without_what_is_needed_is_told(prepared, wrong, message):
    with pytest.raises(UsageError, match=message):
        load(prepared(**wrong).data_dir)


def test_a_test_part_whose_labels_are_kept_back_is_left_out(prepared):
    data = load(prepared(labelled=False).data_dir, test_split=0.3)
    assert data.train_split.count + data.test_split.count == 11


def test_a_data_set_without_a_test_part_is_divided_by_class(prepared):
    folder = prepared(second=None).data_dir
    with pytest.raises(UsageError, match="no test part: --test-split 0.2"):
        load(folder)
    data = load(folder, validation_split=0.3, batch_size=1)
    assert data.train_split.count == len(labels_of(data.train(0))) == 7
    assert data.test_split.count == len(labels_of(data.test())) == 4
    assert labels_of(data.test()).tolist().count(1) == 2  # of five dogs, and as many of six cats
    for x, y in data.test():
        assert ((x.numpy().mean(axis=(1, 2, 3)) > 115) == y.numpy()).all()
    again, other = (load(folder, validation_split=0.3, batch_size=1, seed=s) for s in (0, 1))
    assert again.test_split.fingerprint() == data.test_split.fingerprint() != other.test_split.fingerprint()


def test_records_are_divided_for_validation_too(prepared):
    data = load(prepared().data_dir, validation_split=0.4)
    assert (data.train_split.count, data.val_split.count, data.test_split.count) == (7, 4, 5)
    assert np.bincount(data.val_split.labels).tolist() == [2, 2]
    images, labels = next(data.validation())
    assert images.shape[0] == 4 and labels.numpy().tolist() == data.val_split.labels.tolist()
    again = load(prepared().data_dir, validation_split=0.4, seed=1)
    assert again.val_split.fingerprint() != data.val_split.fingerprint() != data.train_split.fingerprint()


def test_any_name_of_tensorflow_datasets(asked, tmp_path):
    assert load("tfds:tiny_pets:1.0.0", data_dir=str(tmp_path)).train_split.count == 11
    assert datasets.count_classes("tfds:tiny_pets") == 2
    assert asked == [("tiny_pets:1.0.0", str(tmp_path)), ("tiny_pets", None)]


def test_a_registered_name_is_read_in_an_order_of_each_epoch(asked, tmp_path):
    data = load("oxford_iiit_pet", data_dir=str(tmp_path))
    assert asked == [("oxford_iiit_pet", str(tmp_path))]
    assert data.class_names == ("cat", "dog") and data.steps_per_epoch == 3
    orders = [labels_of(data.train(epoch)).tolist() for epoch in (0, 0, 1, 2, 3)]
    assert orders[0] == orders[1] and any(order != orders[0] for order in orders[2:])
    assert len(labels_of(data.test())) == 5


def test_a_name_that_tensorflow_datasets_has_not_is_told_with_the_nearest(tf, tmp_path):
    with pytest.raises(UsageError, match="'cifar11'.*'cifar10"):
        load("tfds:cifar11", data_dir=str(tmp_path))
    with pytest.raises(UsageError, match="coco "):
        load("tfds:coco", data_dir=str(tmp_path))


def test_data_set_that_cannot_be_fetched_says_where_to_put_it(tf, tmp_path, monkeypatch):
    import tensorflow_datasets as tfds

    def no_network(*args, **kwargs):
        raise ConnectionError("no route to host")

    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", no_network)
    with pytest.raises(UsageError, match="downloads/manual.*scripts/demo.sh") as error:
        load("oxford_iiit_pet", data_dir=str(tmp_path))
    assert str(tmp_path) in str(error.value)


def test_a_stream_goes_on_from_any_minibatch(prepared):
    data = load(prepared().data_dir, seed=2)
    whole = [*data.train(1), *data.train(2)]
    for (x, y), (other, label) in zip(data.stream(1, 1), whole[1:]):
        np.testing.assert_array_equal(x, other)
        np.testing.assert_array_equal(y, label)
