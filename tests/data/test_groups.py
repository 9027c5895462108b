"""Series of photographs stand in one part of the data."""

import numpy as np
import pytest

from elastictrainer import UsageError
from elastictrainer.data import datasets
from elastictrainer.data.parts import stratified_mask

NAMES = ["a", "b", "c"]


def series(seed):
    """Labels and groups of 300 images of three classes, in series of 1 to 9 images of one class, mixed."""
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 10, 120)
    labels, groups = np.repeat(random.integers(0, 3, 120), sizes), np.repeat(np.arange(120), sizes)
    mixed = random.permutation(len(labels))[:300]
    return labels[mixed], groups[mixed]


@pytest.mark.parametrize("fraction", [0.1, 0.25, 0.5])
@pytest.mark.parametrize("seed", range(5))
def test_no_group_is_divided_and_each_class_has_its_share(seed, fraction):
    labels, groups = series(seed)
    apart = stratified_mask(labels, NAMES, fraction, seed, groups=groups)
    assert not set(groups[apart]) & set(groups[~apart])
    for label in range(3):
        of_it = labels == label
        largest = np.bincount(groups[of_it]).max()
        assert abs(apart[of_it].sum() - fraction * of_it.sum()) <= largest / 2 + 0.5, "0.5: a whole number"
    again, other = (stratified_mask(labels, NAMES, fraction, k, groups=groups) for k in (seed, seed + 1))
    np.testing.assert_array_equal(apart, again)
    assert (apart != other).any()


def test_groups_of_several_classes_stay_whole_too():
    random = np.random.default_rng(0)
    labels, groups = random.integers(0, 3, 300), random.integers(0, 60, 300)
    apart = stratified_mask(labels, NAMES, 0.2, 0, groups=groups)
    assert not set(groups[apart]) & set(groups[~apart])
    off = [apart[labels == label].sum() - 0.2 * (labels == label).sum() for label in range(3)]
    assert max(map(abs, off)) < np.bincount(groups).max() / 2, "as near as half a group"


def test_a_class_of_two_large_groups_is_in_both_parts():
    labels, groups = np.repeat([0, 1], 20), np.repeat([0, 1, 2, 3], [15, 5, 12, 8])
    apart = stratified_mask(labels, NAMES[:2], 0.1, 0, groups=groups)
    assert sorted(set(groups[apart])) == [1, 3], "the smaller one is apart"


def test_a_class_of_one_group_cannot_be_divided():
    with pytest.raises(UsageError, match="--test-split .*'b'"):
        stratified_mask(np.repeat([0, 1], 4), NAMES[:2], 0.5, 0, groups=np.array([0, 1, 2, 3, 4, 4, 4, 4]))


def table(folder, columns, row):
    """Write a table of the 32 images of `image_folder`; `row` gives the last fields of image k."""
    files = sorted(folder.glob("*/*/*.png"))
    rows = [f"{file},{file.parent.name},{row(k)}" for k, file in enumerate(files)]
    (folder / "t.csv").write_text("\n".join([f"path,label,{columns}", *rows]))
    return files, str(folder / "t.csv")


def test_a_table_names_groups_and_images_without_one_are_their_own(tf, image_folder):
    files, path = table(image_folder, "group", lambda k: "" if k % 8 == 0 else f"walk {k // 3}")
    data = datasets.load(path, 2, (8, 8), test_split=0.25, validation_split=0.25)
    part_of = {file: part for part, split in data.splits.items() for file in split.files}
    assert len(part_of) == len(files) and set(part_of.values()) == {"train", "val", "test"}
    for walk in range(len(files) // 3):
        members = [str(files[k]) for k in range(3 * walk, 3 * walk + 3) if k % 8]
        assert len({part_of[file] for file in members}) == 1


def test_a_table_that_divides_a_group_raises_an_error(tf, image_folder):
    parts = ("train", "test")
    _, path = table(image_folder, "split,group", lambda k: f"{parts[k % 2]},walk {k // 3}")
    with pytest.raises(UsageError, match=r"'walk 0' .*\(line 2\).*\(line 3\)"):
        datasets.load(path, 2, (8, 8))
    _, path = table(image_folder, "split,group", lambda k: f"{parts[k % 2]},{parts[k % 2]} walk {k // 6}")
    data = datasets.load(path, 2, (8, 8), validation_split=0.3)
    walks = {part: set(split.groups) for part, split in data.splits.items()}
    assert not walks["train"] & walks["val"] and not walks["train"] & walks["test"]
