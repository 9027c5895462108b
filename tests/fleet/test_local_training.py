"""A client's rounds: what trains, what it costs, and what holds from one round to the next."""

import json
from dataclasses import replace

import numpy as np
import pytest

from fleet_builders import CLASSES, fleet_settings


@pytest.fixture(scope="module")
def client(tf, tmp_path_factory):
    """Local training of a module-wide client, its images, and its profile."""
    from elastictrainer.experiment import assembly
    from elastictrainer.fleet.local_training import LocalTraining

    settings = fleet_settings(tmp_path_factory.mktemp("fleet"))
    training = LocalTraining(settings, CLASSES)
    data = assembly.load_data(settings.for_training())
    return training, data, training.profile(data, settings.profile)


def changed(training, tensors):
    """The indices of the tensors that differ from what the round began with."""
    values = [v.numpy() for v in training.model.trainable_weights]
    began = {**dict(enumerate(training._initial)), **tensors}
    return {index for index, value in enumerate(values) if not np.array_equal(value, began[index])}


def test_with_time_for_all_every_tensor_trains_and_is_sent(client):
    from elastictrainer.fleet.round_work import Device

    training, data, profile = client
    device = Device(profile)
    trained, kept = training.train({}, data, device, 1e6, 1)
    assert set(trained.tensors) == changed(training, {}) == set(range(len(profile)))
    assert trained.examples == 4 * data.steps_per_epoch and kept == ""
    assert trained.seconds == pytest.approx(device.full_seconds(data.steps_per_epoch))


def test_a_slow_client_trains_what_the_time_allows_and_sends_only_that(client):
    from elastictrainer.fleet.round_work import Device

    training, data, profile = client
    slow = Device(profile, 4.0)
    seconds = 0.3 * slow.full_seconds(data.steps_per_epoch)
    trained, kept = training.train({}, data, slow, seconds, 1)
    assert 0 < len(trained.tensors) < len(profile)
    assert set(trained.tensors) == changed(training, {})
    assert 0 < trained.seconds <= seconds
    again, later = training.train(trained.tensors, data, slow, seconds, 2, kept)
    assert set(again.tensors) == set(trained.tensors), "the selection holds for some rounds"
    assert again.examples > trained.examples, "and nothing is scored for it again"
    assert changed(training, trained.tensors) == set(again.tensors)
    assert json.loads(later)["rounds"] == 2


def test_after_as_many_rounds_as_an_interval_has_tensors_are_scored_again(client):
    from elastictrainer.fleet.round_work import Device

    training, data, profile = client
    slow = Device(profile, 4.0)
    seconds, kept, examples = 0.3 * slow.full_seconds(data.steps_per_epoch), "", []
    for number in range(1, 6):
        trained, kept = training.train({}, data, slow, seconds, number, kept)
        examples.append(trained.examples)
    assert examples[0] == examples[4] < examples[1] == examples[2] == examples[3]


def test_another_clients_round_leaves_no_trace(client):
    from elastictrainer.fleet.round_work import Device

    training, data, profile = client
    other = replace(data, splits={"train": data.train_split.subset(data.train_split.labels == 0)})
    start = [v.copy() for v in training._initial]
    training.train({}, other, Device(profile), 1e6, 1)
    training._assign({})
    for value, before in zip(training.model.trainable_weights, start):
        np.testing.assert_array_equal(value.numpy(), before)


def test_drop_leaves_a_slow_client_out(client):
    from elastictrainer.fleet.round_work import Device

    training, data, profile = client
    whole, training.settings = training.settings, replace(training.settings, rule="drop")
    try:
        trained, _ = training.train({}, data, Device(profile, 4.0), 1e-3, 1)
    finally:
        training.settings = whole
    assert trained.tensors == {} and trained.examples == 0


def test_two_processes_start_from_the_same_weights_and_another_seed_shows(client, tmp_path):
    from elastictrainer.fleet.local_training import LocalTraining

    training = client[0]
    assert LocalTraining(training.settings, CLASSES).start == training.start
    assert LocalTraining(replace(training.settings, seed=1), CLASSES).start != training.start
