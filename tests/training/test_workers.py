"""The knowledge of a process about the others; training together is in tests/system/test_distribution.py."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from elastictrainer import RunError, UsageError
from elastictrainer.experiment import assembly
from elastictrainer.training import workers


def test_each_process_draws_random_numbers_of_its_own(tf):
    def drawn(rank):
        assembly.configure(seed=3)
        model = tf.keras.Sequential(
            [tf.keras.Input((100,)), tf.keras.layers.Dropout(0.5), tf.keras.layers.Dense(1)]
        )
        workers.decorrelate(model, rank)
        return [model.layers[0](np.ones((1, 100), "float32"), training=True).numpy() for _ in range(2)]

    first, again, second = drawn(0), drawn(0), drawn(1)
    np.testing.assert_array_equal(first, again)
    assert all(0.2 < np.mean(a != b) < 0.8 for a in first for b in second)


@pytest.mark.parametrize(
    "config",
    [
        "",
        "{",
        "{}",
        '{"cluster": {"worker": ["a:1"]}, "task": {"index": 1}}',
        '{"cluster": {"worker": ["a:1"], "ps": ["b:1"]}, "task": {"index": 0}}',
    ],
)
def test_a_wrong_environment_is_told(config, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(UsageError, match='"cluster": {"worker"'):
        workers.create("multi-worker")


def test_an_index_that_no_worker_has_is_named(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"index": 5}}')
    with pytest.raises(UsageError, match="2 workers.* 0 to 1; .* 5"):
        workers.create("multi-worker")


@pytest.mark.parametrize(
    "worker, said",
    [
        ("nowhere", "worker 1 .*'nowhere'.* host:port"),
        ("host:70000", "expected host:port"),
        ("no-such-host.invalid:2000", "'no-such-host.invalid' has no address"),
    ],
)
def test_an_address_that_is_none_is_named_at_once(worker, said, monkeypatch):
    config = {"cluster": {"worker": ["localhost:2000", worker]}, "task": {"index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    with pytest.raises(UsageError, match=said):
        workers.create("multi-worker")


def test_a_strategy_is_none_or_one_of_those_there_are():
    assert workers.create("none") is None
    with pytest.raises(UsageError, match="none, multi-worker"):
        workers.create("mirrored")


def test_a_lost_process_is_told_with_the_next_step(tf):
    with pytest.raises(RunError, match=" 2 .*--resume"):
        with workers.Workers.explaining_lost_peers(SimpleNamespace(count=2)):
            raise tf.errors.UnavailableError(None, None, "socket closed")


@pytest.mark.parametrize("asks", [[False, False], [True, False], [False, True]])
def test_all_processes_stop_after_the_epoch_in_which_one_was_asked_to(tf, asks):
    from elastictrainer.training.workers import StopTogether

    mine, others = asks
    callback = StopTogether(SimpleNamespace(gather=lambda flags: np.array([flags, [others]])))
    model = SimpleNamespace(stop_training=mine)
    callback.set_model(model)
    callback.on_train_batch_end(0)
    assert not model.stop_training  # this one would leave the others waiting
    callback.on_epoch_end(0)
    assert model.stop_training == any(asks)
    others = False
    model.stop_training = False
    callback.on_epoch_end(1)
    assert not model.stop_training  # what was asked for is not asked for again
