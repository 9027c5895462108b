"""The parts of a data set: stored order, drawn orders, decoding, joined parts, what is set apart."""

import numpy as np
import pytest

from elastictrainer import UsageError
from elastictrainer.data import datasets
from elastictrainer.data.splits import (
    ArraySplit,
    JoinedSplit,
    decode_in_order,
    name_parts,
    split_dataset,
    stratified_places,
)


def split_of(*greys, side=4):
    """A square image of each grey; its label is its number."""
    images = np.array([np.full((side, side, 3), grey, np.uint8) for grey in greys])
    return ArraySplit(images, np.arange(len(greys)))


@pytest.fixture
def split(tf):
    """Five grey images, each a shade lighter; labels count down."""
    return split_of(0, 50, 100, 150, 200).relabelled(np.arange(5)[::-1])


def order(split, seed):
    return [int(number) for number in split.ordered()(seed)]


def test_the_stored_order_and_drawn_ones(tf, split):
    assert split.count == 5 and order(split, None) == [0, 1, 2, 3, 4]
    drawn = [order(split, tf.constant(seed, tf.int64)) for seed in ([0, 1], [0, 1], [0, 2], [1, 1])]
    assert drawn[0] == drawn[1] and sorted(drawn[0]) == [0, 1, 2, 3, 4]
    assert drawn[0] != drawn[2] or drawn[0] != drawn[3]


def test_images_are_decoded_in_the_stored_order_resized_with_their_label_and_range(tf, split):
    image, label = split.decoder((8, 12))(tf.constant(3))
    assert image.shape == (8, 12, 3) and image.dtype == tf.float32
    assert (image.numpy() == 150).all() and int(label) == 1 and label.dtype == tf.int64
    decoded = decode_in_order(split, (2, 2))
    pairs = [(round(float(image[0, 0, 0])), int(label)) for image, label in decoded]
    assert pairs == [(0, 4), (50, 3), (100, 2), (150, 1), (200, 0)]


def read(tf, split, seed=None):
    """(grey, label) of each image."""
    order = split.ordered()(None if seed is None else tf.constant([seed, 0], tf.int64))
    found = order.map(split.decoder((4, 4)))
    return [(float(image.numpy().mean()), int(label)) for image, label in found]


@pytest.fixture
def joined(tf):
    labels = np.array([3, 2]), np.array([3]), np.array([0, 1])
    splits = split_of(10, 20), split_of(30, side=8), split_of(40, 50)
    return JoinedSplit([split.relabelled(of_split) for split, of_split in zip(splits, labels)])


def test_each_image_of_joined_parts_comes_with_its_label_also_in_a_drawn_order(tf, joined):
    assert read(tf, joined) == [(10, 3), (20, 2), (30, 3), (40, 0), (50, 1)]
    assert joined.count == 5
    shuffled = [read(tf, joined, seed) for seed in range(4)]
    assert all(sorted(found) == sorted(read(tf, joined)) for found in shuffled)
    assert len(set(map(tuple, shuffled))) > 1


@pytest.mark.parametrize("chosen", [[1, 0, 1, 0, 1], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0]])
def test_a_subset_has_what_was_chosen(tf, joined, chosen):
    expected = [pair for pair, there in zip(read(tf, joined), chosen) if there]
    assert (read(tf, joined.subset(np.array(chosen, bool))) if expected else []) == expected


def test_joined_images_have_the_names_of_their_sources(joined):
    for number, split in enumerate(joined.splits):
        split.name_of = lambda k, number=number: f"{number}-{k}.png"
    names = [joined.name_of(k) for k in range(joined.count)]
    assert names == ["0-0.png", "0-1.png", "1-0.png", "2-0.png", "2-1.png"]
    assert joined.subset(np.array([0, 0, 1, 0, 1], bool)).name_of(1) == "2-1.png"


def test_labels_are_replaced(tf):
    split = split_of(10, 20, 30).relabelled(np.array([2, 0, 5]))
    assert read(tf, split) == [(10, 2), (20, 0), (30, 5)]
    assert split.labels.tolist() == [2, 0, 5] and split.count == 3
    joined = JoinedSplit([split_of(10, 20), split_of(30)]).relabelled(np.array([2, 0]))
    assert read(tf, joined.subset(np.array([False, True, True]))) == [(20, 0), (30, 2)]


def made(count):
    """A split of two classes, a third of it of the second; its images have their number in every pixel."""
    images = np.broadcast_to(np.arange(count, dtype=np.uint8)[:, None, None, None], (count, 2, 2, 3))
    return ArraySplit(images, (np.arange(count) % 3 == 0).astype(np.int64))


def numbers(split):
    return split.images[:, 0, 0, 0].tolist()


def parts_of(parts, **options):
    return split_dataset("made up", ["a", "b"], parts, **options)


@pytest.mark.parametrize("fraction, expected", [(0.25, [1, 2]), (0.01, [1, 1]), (0.9, [2, 7])])
def test_every_class_keeps_an_image_in_both_parts_and_the_seed_draws(fraction, expected):
    images = np.broadcast_to(np.arange(11, dtype=np.uint8)[:, None, None, None], (11, 2, 2, 3))
    whole = ArraySplit(images, np.repeat([0, 1], [3, 8]))
    drawn = [parts_of({"all": whole}, test_split=fraction, seed=seed) for seed in (0, 0, *range(1, 9))]
    assert np.bincount(drawn[0]["test"].labels).tolist() == expected
    first, again, *others = (numbers(parts["test"]) for parts in drawn)
    assert first == again and any(first != other for other in others)


def test_validation_images_are_training_images_and_parts_that_are_there_stay():
    train, val, test = made(30), made(6), made(9)
    parts = parts_of({"train": train, "val": val, "test": test})
    assert parts["train"] is train and parts["val"] is val
    assert parts_of({"train": train, "val": val}, test_split=0.2)["val"] is val
    parts = parts_of({"train": train, "test": test}, validation_split=0.2, seed=4)
    assert parts["test"] is test
    assert sorted(numbers(parts["train"]) + numbers(parts["val"])) == numbers(train)
    assert np.bincount(parts["val"].labels).tolist() == [4, 2]
    assert numbers(parts["val"]) == sorted(numbers(parts["val"])), "the stored order"


def test_data_without_a_test_part_gets_one_and_a_validation_part_if_both_are_asked_for():
    whole = made(30)
    one = parts_of({"all": whole}, validation_split=0.2)
    assert set(one) == {"train", "test"} and one["test"].count == 6
    same = parts_of({"all": whole}, test_split=0.2)
    assert set(same) == {"train", "test"} and numbers(same["test"]) == numbers(one["test"])
    both = parts_of({"all": whole}, test_split=0.2, validation_split=0.25)
    assert numbers(both["test"]) == numbers(one["test"]), "the test images do not depend on the others"
    assert sorted(sum((numbers(both[part]) for part in ("train", "val", "test")), [])) == numbers(whole)
    assert both["val"].count == 6


@pytest.mark.parametrize(
    "there, asked, message",
    [
        (("train", "test"), {"test_split": 0.2}, "leave out --test-split"),
        (("train", "test", "val"), {"validation_split": 0.2}, "leave out --val"),
        (("train", "val"), {}, "--test-split 0.2"),
        (("train", "val"), {"validation_split": 0.2}, "--test-split 0.2"),
        (("all",), {}, "--test-split 0.2"),
    ],
)
def test_what_is_there_already_or_missing_is_told(there, asked, message):
    with pytest.raises(UsageError, match=message):
        parts_of({part: made(9) for part in there}, **asked)


@pytest.mark.parametrize("name", ["val", "valid", "validation"])
def test_splits_of_a_collection_may_have_any_usual_name(name):
    assert name_parts("x", {"train": 1, "test": 2, name: 3, "more": 4}) == {"train": 1, "test": 2, "val": 3}
    assert name_parts("x", {"train": 1, name: 3}) == {"train": 1, "test": 3}
    with pytest.raises(UsageError, match="train is needed"):
        name_parts("x", {name: 3})
    other = "val" if name != "val" else "valid"
    with pytest.raises(UsageError, match="one validation part is used"):
        name_parts("x", {"train": 1, name: 2, other: 3})


def load(path, **options):
    return datasets.load(str(path), 2, (8, 8), **options)


def test_a_folder_may_have_a_validation_part_under_any_usual_name_of_the_same_classes(tf, image_folder):
    for name in ("val", "valid", "validation"):
        (image_folder / "test").rename(image_folder / name)
        assert load(image_folder, test_split=0.25).val_split.count == 8
        (image_folder / name).rename(image_folder / "test")
    (image_folder / "val" / "dark").mkdir(parents=True)
    with pytest.raises(UsageError, match="val lacks light"):
        load(image_folder)
    (image_folder / "valid").mkdir()
    with pytest.raises(UsageError, match="val and valid"):
        load(image_folder)


def test_a_table_may_have_a_validation_part(tf, tmp_path, image_folder):
    files = sorted((image_folder / "train").glob("*/*.png"))
    kinds = ("train", "val", "train", "test", "validation", "train")
    rows = [f"{file},{file.parent.name},{kinds[k % 6]}" for k, file in enumerate(files)]
    (tmp_path / "t.csv").write_text("\n".join(["path,label,split", *rows]))
    data = load(tmp_path / "t.csv")
    assert [data.splits[part].count for part in ("train", "val", "test")] == [12, 8, 4]


@pytest.mark.parametrize("option", ["test_split", "validation_split"])
def test_a_class_too_small_to_divide_names_the_option_that_was_given(option):
    images = np.zeros((4, 2, 2, 3), np.uint8)
    with pytest.raises(UsageError, match=f"'b' has 1 image.*--{option.replace('_', '-')} needs"):
        parts_of({"all": ArraySplit(images, np.array([0, 0, 0, 1]))}, **{option: 0.5})


@pytest.mark.parametrize("counts", [(50, 30, 20), (1, 1, 98), (7,), (3, 0, 9)])
@pytest.mark.parametrize("seed", range(3))
def test_any_number_of_first_places_has_the_same_share_of_every_class(counts, seed):
    labels = np.repeat(np.arange(len(counts)), counts)
    places = stratified_places(labels, seed)
    assert sorted(places) == list(range(len(labels)))
    for first in range(len(labels) + 1):
        found = np.bincount(labels[places < first], minlength=len(counts))
        assert np.all(np.abs(found - first * np.array(counts) / len(labels)) <= 1)
    np.testing.assert_array_equal(places, stratified_places(labels, seed))
    if len(counts) > 2:
        assert (places != stratified_places(labels, seed + 1)).any()
