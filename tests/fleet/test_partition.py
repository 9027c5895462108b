"""Which images a client has."""

import numpy as np
import pytest
from PIL import Image

from elastictrainer.errors import UsageError
from elastictrainer.fleet.partition import dirichlet, own_images

LABELS = np.repeat(np.arange(10), 30)


def test_every_image_has_one_client_and_the_seed_decides():
    owner = dirichlet(LABELS, 8, 0.5, seed=3, least=4)
    assert owner.shape == LABELS.shape and set(owner) == set(range(8))
    assert np.bincount(owner).min() >= 4
    np.testing.assert_array_equal(owner, dirichlet(LABELS, 8, 0.5, seed=3, least=4))
    assert (owner != dirichlet(LABELS, 8, 0.5, seed=4, least=4)).any()


def test_a_low_concentration_gives_each_client_few_classes():
    def share_of_largest(concentration):
        owner = dirichlet(LABELS, 5, concentration, seed=0)
        counts = np.array([np.bincount(owner[LABELS == label], minlength=5) for label in range(10)])
        return (counts.max(axis=1) / 30).mean()

    assert share_of_largest(0.1) > share_of_largest(0.5) > share_of_largest(1000.0)
    assert share_of_largest(1000.0) < 0.3


def test_too_many_clients_are_an_error():
    with pytest.raises(UsageError, match="300 images .*100 clients, 4 each"):
        dirichlet(LABELS, 100, 0.5, seed=0, least=4)


@pytest.fixture
def folder(tmp_path):
    for name in ("birch", "oak"):
        (tmp_path / "train" / name).mkdir(parents=True)
        for k in range(2):
            Image.new("RGB", (9, 9), (40 * k, 0, 0)).save(tmp_path / "train" / name / f"{k}.png")
    return tmp_path


def test_a_folder_may_lack_classes_and_its_labels_are_the_fleets(folder):
    split = own_images(folder, ["ash", "birch", "oak"])
    assert split.labels.tolist() == [1, 1, 2, 2]
    assert own_images(folder / "train", ["ash", "birch", "oak"]).labels.tolist() == [1, 1, 2, 2]


def test_a_class_that_the_server_does_not_have_is_an_error(folder):
    with pytest.raises(UsageError, match="'oak'"):
        own_images(folder, ["ash", "birch"])
    with pytest.raises(UsageError, match="no folder"):
        own_images(folder / "none", ["ash", "birch"])
