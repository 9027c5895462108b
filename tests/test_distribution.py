"""Two real processes on the loopback against one."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import make_images

from elastictrainer import TensorTimings, UsageError

SHARED = ("--model", "usermodels:good", "--dataset", "images", "--image-size", "16", "--learning-rate", "0.003", "--epochs", "2",
          "--interval", "1", "--importance-batches", "2")  # fmt: skip


def addresses(count):
    """`count` ports of the loopback that are free."""
    with_ports = [socket.socket() for _ in range(count)]
    for one in with_ports:
        one.bind(("127.0.0.1", 0))
    found = [f"127.0.0.1:{one.getsockname()[1]}" for one in with_ports]
    for one in with_ports:
        one.close()
    return found


def start(folder, module, *arguments, **environment):
    return subprocess.Popen(
        [sys.executable, "-m", f"elastictrainer.cli.{module}", *map(str, arguments)], cwd=folder, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]), **environment},
    )  # fmt: skip


def finish(processes):
    try:
        said = [process.communicate(timeout=200)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert all(process.returncode == 0 for process in processes), said
    return said


def selections(folder):
    return [json.loads(line)["selected"] for line in (folder / "selections.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    """Images, and the profile that one of two processes has: a chain, so that all selections are the same on any machine."""
    folder = tmp_path_factory.mktemp("workers")
    make_images(folder / "images", train=24)
    finish([start(folder, "profile", *SHARED[:8], "--batch-size", "2", "--output", "measured.json", "--steps", "2")])
    measured = TensorTimings.load(folder / "measured.json")
    n = len(measured)
    for batch in (2, 4):
        chain = TensorTimings.from_chain(list(measured.names), 10.0, np.arange(1.0, n + 1), np.full(n, 2.0))
        chain.shapes, chain.metadata = measured.shapes, {**measured.metadata, "batch_size": batch}
        chain.save(folder / f"b{batch}.json")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["full", "elastic"])
def test_two_workers_reach_the_weights_of_one_process(workshop, scheme):
    import tensorflow as tf

    options = (*SHARED, "--batch-size", "4", "--scheme", scheme, "--rho", "0.7")
    cluster = addresses(2)
    finish([
        start(workshop, "train", *options, "--profile", "b2.json", "--output", f"{scheme}-two", "--strategy", "multi-worker",
              TF_CONFIG=json.dumps({"cluster": {"worker": cluster}, "task": {"type": "worker", "index": rank}}))
        for rank in (0, 1)
    ])  # fmt: skip
    finish([start(workshop, "train", *options, "--profile", "b4.json", "--output", f"{scheme}-one", "--deterministic")])
    folders = [workshop / f"{scheme}-{name}" for name in ("one", "two", "two-worker1")]
    one, first, second = (tf.keras.models.load_model(folder / "model.keras", compile=False).get_weights() for folder in folders)
    for alone, a, b in zip(one, first, second):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(a, alone, rtol=1e-4, atol=1e-6)
    if scheme == "elastic":
        chosen = [selections(folder) for folder in folders]
        assert chosen[0] == chosen[1] == chosen[2] and 0 < len(chosen[0][-1]) < len(one)


def test_each_process_gets_its_share():
    from elastictrainer.distribution import Share

    class Data:
        steps_per_epoch = 1
        class_names = ("a", "b")

        def train(self, epoch, first=0):
            yield np.arange(6), np.arange(6) * 10

        def test(self):
            return "all"

    parts = [Share(Data(), rank, 3) for rank in range(3)]
    assert [next(part.train(0))[0].tolist() for part in parts] == [[0, 3], [1, 4], [2, 5]]
    assert parts[0].test() == "all" and parts[0].class_names == ("a", "b") and parts[0].steps_per_epoch == 1


@pytest.mark.parametrize("config", ["", "{", "{}", '{"cluster": {"worker": ["a:1"]}, "task": {"index": 1}}',
                                    '{"cluster": {"worker": ["a:1"], "ps": ["b:1"]}, "task": {"index": 0}}'])  # fmt: skip
def test_a_wrong_environment_is_told(config, monkeypatch):
    from elastictrainer import distribution

    monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(UsageError, match='"cluster": {"worker"'):
        distribution.create("multi-worker")


def test_what_is_not_supported_is_told():
    from elastictrainer import distribution

    assert distribution.create("none") is None
    with pytest.raises(UsageError, match="multi-worker"):
        distribution.create("mirrored")
    with pytest.raises(UsageError, match="none, multi-worker, mirrored"):
        distribution.create("tpu")
