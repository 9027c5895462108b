"""A client's images and rounds: what trains, what it costs, and what holds from one round to the next."""

import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from elastictrainer.errors import UsageError
from fleet_builders import CLASSES, fleet_settings

pytest.importorskip("tensorflow")
from elastictrainer.fleet.local_training import dirichlet, own_images
from elastictrainer.fleet.round_work import Device

LABELS = np.repeat(np.arange(10), 30)


@pytest.fixture(scope="module")
def client(tf, tmp_path_factory):
    """Local training of a module-wide client, its images, and its profile."""
    from elastictrainer.experiment import assembly
    from elastictrainer.fleet.local_training import LocalTraining

    settings = fleet_settings(tmp_path_factory.mktemp("fleet"))
    training = LocalTraining(settings, CLASSES)
    data = assembly.load_data(settings.for_training())
    return training, data, training.profile(data, settings.profile)


def test_a_profile_of_steps_in_bfloat16_is_refused(client, tmp_path):
    training, data, profile = client
    replace(profile, metadata={**profile.metadata, "precision": "mixed_bfloat16"}).save(tmp_path / "p.json")
    training._profile = None
    with pytest.raises(UsageError, match="p.json: its steps are in bfloat16.*--precision float32"):
        training.profile(data, str(tmp_path / "p.json"))
    training._profile = profile


def changed(training, tensors):
    """The indices of the tensors that differ from what the round began with."""
    values = [v.numpy() for v in training.model.trainable_weights]
    began = {**dict(enumerate(training._initial)), **tensors}
    return {index for index, value in enumerate(values) if not np.array_equal(value, began[index])}


def test_with_time_for_all_every_tensor_trains_and_is_sent_and_leaves_no_trace(client):
    training, data, profile = client
    device = Device(profile)
    trained, kept = training.train({}, data, device, 1e6, 1)
    assert set(trained.tensors) == changed(training, {}) == set(range(len(profile)))
    assert trained.examples == data.train_split.count < 4 * data.steps_per_epoch and kept == ""
    assert trained.seconds == pytest.approx(device.full_seconds(data.steps_per_epoch))
    training._assign({})  # as another client's round does
    assert not changed(training, {})


def test_a_slow_client_trains_what_the_time_allows_and_scores_every_four_rounds(client):
    training, data, profile = client
    slow = Device(profile, 4.0)
    seconds, kept, tensors, examples = 0.3 * slow.full_seconds(data.steps_per_epoch), "", {}, []
    for number in range(1, 6):
        trained, kept = training.train(tensors, data, slow, seconds, number, kept)
        assert 0 < len(trained.tensors) < len(profile)
        assert set(trained.tensors) == changed(training, tensors)
        assert 0 < trained.seconds <= seconds
        if 1 < number < 5:
            assert set(trained.tensors) == set(tensors), "the selection holds"
        tensors = trained.tensors
        examples.append(trained.examples)
    assert examples[0] == examples[4] < examples[1] == examples[2] == examples[3]
    assert json.loads(kept)["rounds"] == 1


def test_without_time_for_a_step_a_client_sits_the_round_out(client):
    training, data, profile = client
    trained, _ = training.train({}, data, Device(profile, 4.0), 0.0, 1)
    assert trained.tensors == {} and trained.examples == 0


def test_two_processes_start_from_the_same_weights_and_another_seed_shows(client, tmp_path):
    from elastictrainer.fleet.local_training import LocalTraining

    training = client[0]
    assert LocalTraining(training.settings, CLASSES).start == training.start
    assert LocalTraining(replace(training.settings, seed=1), CLASSES).start != training.start


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
