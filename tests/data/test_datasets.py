import shutil

import numpy as np
import pytest

from builders import tiny_pets
from elastictrainer import RunError, UsageError
from elastictrainer.data import demo_digits


def load(name, **options):
    from elastictrainer.data import datasets

    return datasets.load(str(name), **{"batch_size": 4, "image_size": (32, 32), **options})


def labels_of(batches):
    return np.concatenate([y.numpy() for _, y in batches])


def test_image_folder(tf, image_folder):
    data = load(image_folder, batch_size=5)
    assert data.class_names == ("dark", "light") and data.steps_per_epoch == 4
    x, y = next(data.train(0))
    assert x.shape == (5, 32, 32, 3) and x.dtype == tf.float32 and y.shape == (5,)
    assert all((image.mean() > 125) == label for image, label in zip(x.numpy(), y.numpy()))
    assert labels_of(data.test()).tolist() == [0] * 4 + [1] * 4


def test_order_depends_on_seed_and_epoch_and_can_be_repeated(tf, image_folder):
    data = load(image_folder)
    first, second = labels_of(data.train(0)), labels_of(data.train(1))
    assert sorted(first) == sorted(second) and first.tolist() != second.tolist()
    assert labels_of(data.train(0)).tolist() == first.tolist()
    assert labels_of(load(image_folder, seed=1).train(0)).tolist() != first.tolist()


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda f: (f / "train" / "dark" / "0.png").write_bytes(b""), r"0\.png \(empty\)"),
        (lambda f: (f / "test" / "dark" / "1.png").write_text("not an image"), r"1\.png \(not an image\)"),
        (lambda f: shutil.rmtree(f / "test" / "light"), r"test lacks light"),
        (lambda f: shutil.rmtree(f / "train" / "light"), r"train lacks light"),
        (lambda f: shutil.rmtree(f / "test"), r"no folder 'test'"),
        (lambda f: [p.unlink() for p in (f / "test" / "dark").iterdir()], r"dark holds no image"),
        (lambda f: [shutil.rmtree(f / s / "dark") for s in ("train", "test")], r"at least two"),
    ],
)
def test_malformed_folder_is_named(tf, image_folder, damage, message):
    damage(image_folder)
    with pytest.raises(UsageError, match=message):
        load(image_folder)


def test_an_image_that_is_damaged_behind_its_header_is_named_when_it_is_read(tf, image_folder):
    victim = image_folder / "train" / "light" / "3.png"
    victim.write_bytes(victim.read_bytes()[:-2000])
    with pytest.raises(RunError, match=r"light/3\.png"):
        list(load(image_folder).train(0))


def test_too_few_images_for_a_minibatch(tf, image_folder):
    with pytest.raises(UsageError, match="24 training images"):
        load(image_folder, batch_size=25)


def test_unknown_name_lists_the_valid_ones(tf):
    with pytest.raises(UsageError, match="Did you mean 'stanford_dogs'"):
        load("stanford_dog")


def test_autotuner_is_off(tf, image_folder, monkeypatch):
    seen = []
    monkeypatch.setattr(
        tf.data.Dataset,
        "with_options",
        lambda self, options: (seen.append(options.autotune.enabled), self)[1],
    )
    next(load(image_folder).train(0))
    assert seen == [False]


def test_a_folder_that_a_builder_has_prepared(tf, tmp_path):
    builder = tiny_pets(tmp_path, second="validation")
    builder.download_and_prepare()
    data = load(builder.data_dir)
    assert data.class_names == ("cat", "dog") and data.train_split.count == 11 and data.test_split.count == 5
    x, y = next(data.train(0))
    assert all((image.mean() > 115) == label for image, label in zip(x.numpy(), y.numpy()))
    with pytest.raises(UsageError, match="test part of its own"):
        load(builder.data_dir, validation_split=0.2)


@pytest.mark.parametrize(
    "wrong, message",
    [({"second": "unlabelled"}, "splits train, unlabelled"), ({"label": "breed"}, "features breed, image")],
)
def test_a_prepared_folder_without_what_is_needed_is_told(tf, tmp_path, wrong, message):
    builder = tiny_pets(tmp_path, **wrong)
    builder.download_and_prepare()
    with pytest.raises(UsageError, match=message):
        load(builder.data_dir)


def test_tensorflow_datasets(tf, tmp_path, monkeypatch):
    """Real records on disk, written by tensorflow-datasets for a small data set of the same features."""
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


def test_embedded_domains_share_no_handwriting_and_are_drawn_alike_each_time():
    images, labels = demo_digits.target("train")
    assert images.shape == (len(labels), 32, 32, 3) and images.dtype == np.uint8
    assert set(labels) == set(range(10))
    again, _ = demo_digits.target("train")
    np.testing.assert_array_equal(images, again)
    parts = [demo_digits._SOURCE, demo_digits._TRAIN, demo_digits._TEST]
    used = [set(range(1797)[p]) for p in parts]
    assert not (used[0] & used[1] or used[1] & used[2] or used[0] & used[2])


@pytest.mark.realdata
def test_cub100(tf, cub100):
    data = load(cub100, image_size=(224, 224))
    assert len(data.class_names) == 100 and data.train_split.count == 2999 and data.test_split.count == 2903
    x, _ = next(data.train(0))
    assert x.shape == (4, 224, 224, 3) and 20 < x.numpy().mean() < 235
