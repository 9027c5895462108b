"""The processes that train together; wrong environments are in test_workers.py."""

from elastictrainer.training.cluster import read_cluster


def test_rank_and_addresses_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"index": 1}}')
    assert read_cluster() == (1, ["a:1", "b:1"])
