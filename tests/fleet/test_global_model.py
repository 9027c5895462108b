"""The server's model: its head, its rounds, and what it refuses."""

import csv

import numpy as np
import pytest

from fleet_builders import CLASSES, fleet_settings


@pytest.fixture
def server(tf, tmp_path):
    """The server's model, and the statistics of two clients with different classes."""
    from dataclasses import replace

    from elastictrainer.fleet.global_model import GlobalModel
    from elastictrainer.fleet.local_training import LocalTraining

    model = GlobalModel(fleet_settings(tmp_path, output=str(tmp_path / "out")))
    training, labels = LocalTraining(model.settings, CLASSES), model.data.train_split.labels
    parts = {"client 0": labels == 0, "client 1": labels > 0}
    statistics = {
        name: training.statistics(
            replace(model.data, splits={"train": model.data.train_split.subset(chosen)})
        )
        for name, chosen in parts.items()
    }
    return model, statistics


def test_the_head_solved_for_all_clients_knows_all_classes(server):
    model, statistics = server
    before = model.evaluate(0)["accuracy"]
    assert model.solve_head(statistics, [1.5, 6.0]) == []
    assert model.evaluate(0)["accuracy"] > max(0.8, before)
    assert model.seconds == 6.0, "it waits for the slowest"
    assert set(model.to_send()) == model.changed and len(model.changed) == 2


def test_broken_statistics_are_refused_by_name(server):
    from dataclasses import replace

    from elastictrainer.errors import UsageError

    model, statistics = server
    broken = replace(statistics["client 1"], sums=statistics["client 1"].sums * np.nan)
    (line,) = model.solve_head({**statistics, "client 1": broken}, [1.0])
    assert line.startswith("client 1: refused: ")
    with pytest.raises(UsageError, match="client 1: refused"):
        model.solve_head({"client 1": broken}, [1.0])


def test_a_round_averages_the_sound_updates_and_names_the_others(server, tmp_path):
    from elastictrainer.fleet.partial_average import Update

    model, statistics = server
    model.solve_head(statistics, [1.0])
    before = model.weights
    good = Update("client 0", 8, {2: before[2] + 0.5})
    poisoned = Update("client 1", 8, {2: np.full_like(before[2], np.nan), 3: before[3]})
    greedy = Update("client 0", 10**6, {2: before[2]})
    refused = model.add_round([good, poisoned, greedy], [2.0, 5.0])
    assert [line.split(": refused: ")[0] for line in refused] == ["client 1", "client 0"]
    assert "tensor 2" in refused[0] and "1000000 examples" in refused[1]
    np.testing.assert_allclose(model.weights[2], before[2] + 0.5, rtol=1e-6)
    np.testing.assert_array_equal(model.weights[3], before[3])
    assert set(model.to_send()) == {2, *range(len(before) - 2, len(before))}
    model.evaluate(1, trained=1, refused=2)
    (row,) = csv.DictReader(open(tmp_path / "out" / "rounds.csv"))
    assert row["round"] == "1" and float(row["seconds"]) == 6.0 and row["refused"] == "2"
