"""The server's model: its head, its rounds, and what it refuses."""

import csv

import numpy as np
import pytest

from fleet_builders import CLASSES, fleet_settings


@pytest.fixture
def server(tf, tmp_path):
    """The server's model; two clients with different classes have described their images."""
    from dataclasses import replace

    from elastictrainer.fleet.answers import Description
    from elastictrainer.fleet.global_model import GlobalModel
    from elastictrainer.fleet.local_training import LocalTraining

    model = GlobalModel(fleet_settings(tmp_path, output=str(tmp_path / "out")))
    training, labels = LocalTraining(model.settings, CLASSES), model.data.train_split.labels
    for number, chosen in ((1, labels == 0), (2, labels > 0)):
        own = replace(model.data, splits={"train": model.data.train_split.subset(chosen)})
        arrays = training.statistics(own).arrays()
        figures = {"full-seconds": 5.0 * number, "pass-seconds": 1.5 * number}
        model.clients[number] = Description.from_arrays(arrays, figures, model.limits)
    return model


def test_the_head_solved_for_all_clients_knows_all_classes(server):
    before = server.evaluate(0, {})["accuracy"]
    server.solve_head()
    assert server.evaluate(0, {})["accuracy"] > max(0.8, before)
    assert server.seconds == 3.0, "it waits for the slowest"
    assert server.round_s == 5.0, "which does not set the time of a round"
    assert set(server.to_send()) == server.changed and len(server.changed) == 2


def test_weights_cannot_grow_without_end_round_after_round(server):
    from elastictrainer.fleet.answers import Trained

    server.solve_head()
    for factor, said in ((50, 0), (50, 1)):
        values = factor * np.maximum(server.weights[2], 1)
        assert len(server.add_round({1: Trained({2: values}, 8, 2.0)})) == said


def test_without_a_client_that_can_be_used_there_is_no_head(server):
    from elastictrainer.errors import UsageError

    server.clients.clear()
    with pytest.raises(UsageError, match="no client"):
        server.solve_head()


def test_a_round_averages_the_sound_updates_and_names_the_others(server, tmp_path):
    from elastictrainer.fleet.answers import Trained

    server.solve_head()
    before = server.weights
    spoilt = Trained({2: np.full_like(before[2], np.nan), 3: before[3]}, 8, 9.0)
    refused = server.add_round({1: Trained({2: before[2] + 0.5}, 8, 2.0), 2: spoilt})
    assert list(refused) == [2] and "tensor 2" in refused[2]
    np.testing.assert_allclose(server.weights[2], before[2] + 0.5, rtol=1e-6)
    np.testing.assert_array_equal(server.weights[3], before[3])
    assert set(server.to_send()) == {2, *range(len(before) - 2, len(before))}
    server.evaluate(1, {"trained": 1, "refused": 1})
    (row,) = csv.DictReader(open(tmp_path / "out" / "rounds.csv"))
    assert row["round"] == "1" and float(row["seconds"]) == 5.0 and row["refused"] == "1"
