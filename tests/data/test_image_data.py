"""Images as minibatches: their order, and what of it can be repeated."""

import numpy as np
import pytest

from builders import spoil
from elastictrainer import RunError, UsageError
from elastictrainer.data import datasets
from elastictrainer.data.image_data import ImageData
from elastictrainer.data.splits import ArraySplit
from elastictrainer.data.user_images import FileSplit


def make(train=14, test=5, batch_size=4, **options):
    """Images whose pixels are their number; the labels alternate."""

    def split(count):
        numbers = np.arange(count)
        return ArraySplit(np.broadcast_to(numbers[:, None, None, None], (count, 8, 8, 3)) * 1.0, numbers % 2)

    splits = {"train": split(train), "test": split(test)}
    return ImageData("made up", ("even", "odd"), splits, batch_size, (8, 8), **options)


def numbers(minibatches):
    """Return the images of each minibatch, in its order."""
    return [x.numpy()[:, 0, 0, 0].astype(int).tolist() for x, _ in minibatches]


def labels(minibatches):
    return np.concatenate([y.numpy() for _, y in minibatches])


@pytest.mark.parametrize(("batch_size", "steps"), [(4, 4), (7, 2), (16, 1)])
def test_an_epoch_has_full_minibatches_of_all_images(tf, batch_size, steps):
    data = make(batch_size=batch_size)
    assert data.steps_per_epoch == steps
    minibatches = list(data.train(0))
    shapes = ((batch_size, 8, 8, 3), tf.float32, (batch_size,))
    assert [(x.shape, x.dtype, y.shape) for x, y in minibatches] == [shapes] * steps
    order = sum(numbers(minibatches), [])
    assert sorted(order[:14]) == list(range(14)) and order[14:] == order[: len(order) - 14]
    for (_, y), chosen in zip(minibatches, numbers(minibatches)):
        assert y.numpy().tolist() == [k % 2 for k in chosen]


def test_order_depends_on_seed_and_epoch_and_can_be_repeated(tf):
    first, second = numbers(make().train(0)), numbers(make().train(1))
    assert first != second and numbers(make().train(0)) == first
    assert numbers(make(seed=1).train(0)) != first


@pytest.mark.parametrize("epoch, first", [(0, 0), (0, 2), (1, 1)])
def test_a_stream_goes_on_from_any_minibatch_through_the_epochs(tf, epoch, first):
    epochs = [numbers(make().train(k)) for k in range(3)]
    expected = sum(epochs, [])[4 * epoch + first :]
    assert numbers(make().stream(epoch, first).take(len(expected))) == expected
    assert numbers(make().train(epoch, first)) == epochs[epoch][first:]


def test_tensors_are_scored_on_minibatches_of_an_order_of_their_own(tf):
    probes = [numbers(make().probe(k)) for k in (0, 0, 1)]
    assert probes[0] == probes[1] != probes[2]
    assert probes[0] not in [numbers(make().train(epoch)) for epoch in range(3)]
    assert len(probes[0]) == 4


def test_all_test_images_come_as_stored(tf):
    assert numbers(make(evaluation_batch_size=2).test()) == [[0, 1], [2, 3], [4]]


def test_the_first_images_of_a_part_are_a_sample_with_all_classes(tf):
    """Of the labels of 60 images a third is 1."""

    def data(seed):
        made = make(test=60, evaluation_batch_size=7, seed=seed)
        made.test_split.labels[:] = np.arange(60) % 3 == 0
        return made

    first, rest = (sum(numbers(data(1).test(*part)), []) for part in ((0, 15), (15, 60)))
    assert sorted(first + rest) == list(range(60)) and first == sorted(first)
    assert labels(data(1).test(0, 15)).sum() == 5 and labels(data(1).test(15, 30)).sum() == 5
    assert numbers(data(1).test(0, 15)) == numbers(data(1).test(0, 15)) != numbers(data(2).test(0, 15))


def load_folder(folder, **options):
    return datasets.load(str(folder), 4, (16, 16), seed=3, **options)


def test_an_image_that_cannot_be_read_is_named_if_it_can_be_found(tf, image_folder, monkeypatch):
    spoil(image_folder / "train" / "dark" / "3.png")
    data = load_folder(image_folder)
    with pytest.raises(RunError, match="dark/3.png"):
        list(data.train(0))
    monkeypatch.setattr(FileSplit, "find_corrupt", lambda split: None)
    with pytest.raises(RunError, match="reading the images failed: "):
        list(data.train(0))


def test_the_same_pixels_in_the_same_order(tf, image_folder):
    plain = load_folder(image_folder)
    kept = plain.in_memory()
    for read in (lambda data: data.train(2), lambda data: data.train(2, first=3), lambda data: data.test()):
        for (x, y), (other, label) in zip(read(kept), read(plain)):
            np.testing.assert_array_equal(x, other)
            np.testing.assert_array_equal(y, label)
    assert kept.steps_per_epoch == plain.steps_per_epoch
    np.testing.assert_array_equal(kept.train_split.labels, plain.train_split.labels)


def test_what_cannot_be_kept_is_told(tf, image_folder, monkeypatch):
    with pytest.raises(UsageError, match="in files of their own"):
        load_folder("demo").in_memory()
    data, victim = load_folder(image_folder), sorted(image_folder.glob("train/*/*.png"))[2]
    victim.write_bytes(victim.read_bytes()[:1000])
    with pytest.raises(RunError, match=victim.name):
        data.in_memory()
    monkeypatch.setattr("elastictrainer.data.image_data.memory_bytes", lambda: 10_000)
    with pytest.raises(UsageError, match="--cache-images memory: the decoded images take "):
        data.in_memory()
