"""Real records on disk, written by tensorflow-datasets itself for a small data set."""

import numpy as np
import pytest

from builders import tiny_pets
from elastictrainer import UsageError
from elastictrainer.data import datasets


def load(name, **options):
    return datasets.load(str(name), **{"batch_size": 4, "image_size": (32, 32), **options})


def labels_of(batches):
    return np.concatenate([y.numpy() for _, y in batches])


def test_a_folder_that_a_builder_has_prepared(tf, tmp_path):
    builder = tiny_pets(tmp_path, second="validation")
    builder.download_and_prepare()
    data = load(builder.data_dir)
    assert data.class_names == ("cat", "dog") and data.train_split.count == 11 and data.test_split.count == 5
    x, y = next(data.train(0))
    assert all((image.mean() > 115) == label for image, label in zip(x.numpy(), y.numpy()))
    with pytest.raises(UsageError, match="test part"):
        load(builder.data_dir, test_split=0.2)


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"second": "unlabelled"}, "no test part: --test-split"),
        ({"label": "breed"}, "features breed, image"),
    ],
)
def test_a_prepared_folder_without_what_is_needed_is_told(tf, tmp_path, wrong, message):
    builder = tiny_pets(tmp_path, **wrong)
    builder.download_and_prepare()
    with pytest.raises(UsageError, match=message):
        load(builder.data_dir)


def test_a_data_set_without_a_test_part_is_divided_by_class(tf, tmp_path):
    builder = tiny_pets(tmp_path, second=None)
    builder.download_and_prepare()
    with pytest.raises(UsageError, match="no test part: --test-split 0.2"):
        load(builder.data_dir)
    data = load(builder.data_dir, validation_split=0.3, batch_size=1)
    assert data.train_split.count == len(labels_of(data.train(0))) == 7
    assert data.test_split.count == len(labels_of(data.test())) == 4
    assert labels_of(data.test()).tolist().count(1) == 2  # of five dogs, and as many of six cats
    for x, y in data.test():
        assert ((x.numpy().mean(axis=(1, 2, 3)) > 115) == y.numpy()).all()
    again, other = (load(builder.data_dir, validation_split=0.3, batch_size=1, seed=s) for s in (0, 1))
    assert again.test_split.fingerprint() == data.test_split.fingerprint() != other.test_split.fingerprint()


def test_any_name_of_tensorflow_datasets(tf, tmp_path, monkeypatch):
    import tensorflow_datasets as tfds

    builder = tiny_pets(tmp_path)
    asked = []
    monkeypatch.setattr(tfds, "builder", lambda name, data_dir: (asked.append((name, data_dir)), builder)[1])
    assert load("tfds:tiny_pets:1.0.0", data_dir=str(tmp_path)).train_split.count == 11
    assert datasets.count_classes("tfds:tiny_pets") == 2
    assert asked == [("tiny_pets:1.0.0", str(tmp_path)), ("tiny_pets", None)]


def test_a_name_that_tensorflow_datasets_has_not_is_told_with_the_nearest(tf, tmp_path):
    with pytest.raises(UsageError, match="'cifar11'.*'cifar10"):
        load("tfds:cifar11", data_dir=str(tmp_path))
    with pytest.raises(UsageError, match="coco "):
        load("tfds:coco", data_dir=str(tmp_path))


def test_class_weights_are_of_the_records(tf, tmp_path):
    builder = tiny_pets(tmp_path)
    builder.download_and_prepare()
    assert load(builder.data_dir).class_weights() == pytest.approx([11 / (2 * 6), 11 / (2 * 5)])


def test_tensorflow_datasets(tf, tmp_path, monkeypatch):
    """By a name; its builder's records are those of a small data set of the same features."""
    import tensorflow_datasets as tfds

    builder = tiny_pets(tmp_path)
    asked = []
    monkeypatch.setattr(tfds, "builder", lambda name, data_dir: (asked.append((name, data_dir)), builder)[1])
    data = load("oxford_iiit_pet", data_dir=str(tmp_path))
    assert asked == [("oxford_iiit_pet", str(tmp_path))]
    assert data.class_names == ("cat", "dog") and data.steps_per_epoch == 2 and data.test_split.count == 5
    x, y = next(data.train(0))
    assert x.shape == (4, 32, 32, 3) and all(
        (image.mean() > 115) == label for image, label in zip(x.numpy(), y.numpy())
    )
    orders = [labels_of(data.train(epoch)).tolist() for epoch in (0, 0, 1, 2, 3)]
    assert orders[0] == orders[1] and any(order != orders[0] for order in orders[2:])
    assert len(labels_of(data.test())) == 5


def test_data_set_that_cannot_be_fetched_says_where_to_put_it(tf, tmp_path, monkeypatch):
    import tensorflow_datasets as tfds

    def no_network(*args, **kwargs):
        raise ConnectionError("no route to host")

    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", no_network)
    with pytest.raises(UsageError, match="downloads/manual.*scripts/demo.sh") as error:
        load("oxford_iiit_pet", data_dir=str(tmp_path))
    assert str(tmp_path) in str(error.value)


def test_a_stream_goes_on_from_any_minibatch(tf, tmp_path):
    builder = tiny_pets(tmp_path)
    builder.download_and_prepare()
    data = load(builder.data_dir, seed=2)
    whole = [*data.train(1), *data.train(2)]
    for (x, y), (other, label) in zip(data.stream(1, 1), whole[1:]):
        np.testing.assert_array_equal(x, other)
        np.testing.assert_array_equal(y, label)


def test_a_test_part_whose_labels_are_kept_back_is_left_out(tf, tmp_path):
    builder = tiny_pets(tmp_path, labelled=False)
    builder.download_and_prepare()
    with pytest.raises(UsageError, match="no test part: --test-split 0.2"):
        load(builder.data_dir)
    data = load(builder.data_dir, test_split=0.3)
    assert data.train_split.count + data.test_split.count == 11
