"""Settings of the activation cache, and the memory it may take."""

import pytest

from elastictrainer import UsageError
from elastictrainer.cache.settings import CacheSettings


@pytest.mark.parametrize("machine, expected", [(24e9, 2e9), (4e9, 1e9)])
def test_a_small_machine_keeps_less_in_memory(monkeypatch, machine, expected):
    monkeypatch.setattr("elastictrainer.cache.settings.environment.memory_bytes", lambda: int(machine))
    assert CacheSettings().kept_bytes == expected


def test_kept_bytes_are_the_memory_asked_for():
    assert CacheSettings(memory=7).kept_bytes == 7 and CacheSettings(memory=0).kept_bytes == 0


@pytest.mark.parametrize("wrong", [{"memory": -1}, {"mode": "maybe"}, {"dtype": "int8"}])
def test_reuse_settings_refuse_a_value_out_of_range(wrong):
    with pytest.raises(UsageError):
        CacheSettings(**wrong)
