"""Two real processes on the loopback against one."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from builders import make_images
from elastictrainer import RunError, TensorTimings, UsageError

SHARED = (
    "--model",
    "usermodels:good",
    "--dataset",
    "images",
    "--image-size",
    "16",
    "--learning-rate",
    "0.003",
    "--epochs",
    "2",
    "--interval",
    "1",
    "--importance-batches",
    "2",
)


def addresses(count):
    """`count` ports of the loopback that are free."""
    with_ports = [socket.socket() for _ in range(count)]
    for one in with_ports:
        one.bind(("127.0.0.1", 0))
    found = [f"127.0.0.1:{one.getsockname()[1]}" for one in with_ports]
    for one in with_ports:
        one.close()
    return found


def start(folder, module, *arguments, sigint=signal.SIG_DFL, **environment):
    return subprocess.Popen(
        [sys.executable, "-m", f"elastictrainer.cli.{module}", *map(str, arguments)],
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, sigint),
        env={
            **os.environ,
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path]),
            **environment,
        },
    )


def finish(processes):
    try:
        said = [process.communicate(timeout=280)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert all(process.returncode == 0 for process in processes), said
    return said


def selections(folder):
    return [json.loads(line)["selected"] for line in (folder / "selections.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    """Images, and profiles of a chain, so that all selections are the same on any machine, for one process and for one of two."""
    folder = tmp_path_factory.mktemp("workers")
    make_images(folder / "images", train=24)
    finish(
        [
            start(
                folder,
                "profile",
                *SHARED[:8],
                "--batch-size",
                "2",
                "--output",
                "measured.json",
                "--steps",
                "2",
            )
        ]
    )
    measured = TensorTimings.load(folder / "measured.json")
    n = len(measured)
    alone = measured.metadata["threads"]
    shared = {**alone, "intra_op": max(1, alone["processors"] // 2)}
    for name, batch, threads in (("share", 2, alone), ("replica", 2, shared), ("alone", 4, alone)):
        chain = TensorTimings.from_chain(list(measured.names), 10.0, np.arange(1.0, n + 1), np.full(n, 2.0))
        chain.shapes, chain.metadata = (
            measured.shapes,
            {**measured.metadata, "batch_size": batch, "threads": threads},
        )
        chain.save(folder / f"{name}.json")
    return folder


def options(scheme):
    return (*SHARED, "--batch-size", "4", "--scheme", scheme, "--rho", "0.7")


MIRRORED = (
    "--profile",
    "replica.json",
    "--strategy",
    "mirrored",
    "--replicas",
    "2",
    "--checkpoint-minutes",
    "0",
)


def weights(folder):
    import tensorflow as tf

    return tf.keras.models.load_model(folder / "model.keras", compile=False).get_weights()


def assert_as_one_process(workshop, scheme, name):
    """Both processes of run `name` have the same weights and selections; one process comes to them as well."""
    finish(
        [
            start(
                workshop,
                "train",
                *options(scheme),
                "--profile",
                "alone.json",
                "--output",
                f"{scheme}-one",
                "--deterministic",
            )
        ]
    )
    folders = [workshop / folder for folder in (f"{scheme}-one", name, f"{name}-worker1")]
    one, first, second = map(weights, folders)
    for alone, a, b in zip(one, first, second):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(a, alone, rtol=1e-4, atol=1e-6)
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in folders]
    assert (
        summaries[1]["accuracy_last"]
        == summaries[2]["accuracy_last"]
        == pytest.approx(summaries[0]["accuracy_last"])
    )
    assert summaries[1]["loss_last"] == pytest.approx(summaries[0]["loss_last"], rel=1e-4)
    return folders


@pytest.mark.slow
def test_two_workers_reach_the_weights_of_one_process(workshop):
    cluster = addresses(2)
    finish(
        [
            start(
                workshop,
                "train",
                *options("full"),
                "--profile",
                "share.json",
                "--output",
                "two",
                "--strategy",
                "multi-worker",
                TF_CONFIG=json.dumps(
                    {"cluster": {"worker": cluster}, "task": {"type": "worker", "index": rank}}
                ),
            )
            for rank in (0, 1)
        ]
    )
    assert_as_one_process(workshop, "full", "two")


@pytest.fixture(scope="module")
def mirrored(workshop):
    """A run of two replicas that was left alone; what it said."""
    (said,) = finish([start(workshop, "train", *options("elastic"), *MIRRORED, "--output", "both")])
    return said


@pytest.mark.slow
def test_replicas_reach_the_weights_and_selections_of_one_process(workshop, mirrored):
    chosen = [selections(folder) for folder in assert_as_one_process(workshop, "elastic", "both")]
    assert chosen[0] == chosen[1] == chosen[2] and 0 < len(chosen[0][-1]) < len(weights(workshop / "both"))
    assert mirrored.count("test accuracy: best") == 1


def last_step(folder):
    """Of the newest checkpoint; -1 where there is none."""
    return max(
        (int(p.name[5:]) for p in folder.glob("checkpoints/step-*") if p.name[5:].isdigit()), default=-1
    )


def wait_for_step(folder, process, step):
    """Until there is a checkpoint of that step or a later one."""
    until = time.monotonic() + 150
    while last_step(folder) < step:
        assert process.poll() is None and time.monotonic() < until, process.communicate()
        time.sleep(0.01)


def children(process):
    """Process ids of those it started, the first replica first."""
    return sorted(
        int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    )


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the replicas through /proc")
def test_replicas_that_were_killed_or_interrupted_go_on_together(workshop, mirrored):
    launched = start(workshop, "train", *options("elastic"), *MIRRORED, "--output", "cut")
    wait_for_step(workshop / "cut", launched, 5)
    os.kill(children(launched)[1], signal.SIGKILL)
    said = launched.communicate(timeout=280)[0]
    assert (
        launched.returncode == 1
        and "replica 1 failed: it was killed. Go on with: et-train --resume cut" in said
    )
    before = last_step(workshop / "cut")
    launched = start(workshop, "train", "--resume", "cut")
    wait_for_step(workshop / "cut", launched, before + 1)
    launched.send_signal(signal.SIGINT)
    said = launched.communicate(timeout=280)[0]
    assert launched.returncode == 130 and said.count("Go on with: et-train --resume cut") == 1
    assert not (workshop / "cut" / "summary.json").exists()
    (said,) = finish([start(workshop, "train", "--resume", "cut")])
    assert "resumed after step" in said
    for folder in ("cut", "cut-worker1"):
        for a, b in zip(weights(workshop / "both"), weights(workshop / folder)):
            np.testing.assert_array_equal(a, b)
        assert selections(workshop / folder) == selections(workshop / "both")


@pytest.mark.slow
def test_replicas_of_a_background_job_can_be_terminated(workshop):
    """A shell's background job, and what it starts, ignores SIGINT."""
    launched = start(
        workshop, "train", *options("full"), *MIRRORED, "--output", "background", sigint=signal.SIG_IGN
    )
    wait_for_step(workshop / "background", launched, 5)
    launched.terminate()
    said = launched.communicate(timeout=280)[0]
    assert launched.returncode == 130 and said.count("Go on with: et-train --resume background") == 1
    assert not (workshop / "background" / "summary.json").exists()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the replicas through /proc")
def test_a_first_replica_that_was_killed_is_told(workshop):
    launched = start(workshop, "train", *options("full"), *MIRRORED, "--output", "first")
    wait_for_step(workshop / "first", launched, 5)
    os.kill(children(launched)[0], signal.SIGKILL)
    said = launched.communicate(timeout=280)[0]
    assert (
        launched.returncode == 1
        and "replica 0 failed: it was killed. Go on with: et-train --resume first" in said
    )


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the replicas through /proc")
def test_replicas_do_not_outlive_what_started_them(workshop):
    launched = start(workshop, "train", *options("full"), *MIRRORED, "--output", "orphans")
    wait_for_step(workshop / "orphans", launched, 5)
    replicas = [Path(f"/proc/{pid}") for pid in children(launched)]
    launched.kill()
    launched.wait()
    until = time.monotonic() + 60
    while any(
        (replica / "cmdline").exists() and (replica / "cmdline").read_bytes() for replica in replicas
    ):  # empty: ended
        assert time.monotonic() < until
        time.sleep(0.1)
    assert not (workshop / "orphans" / "summary.json").exists()
    (said,) = finish([start(workshop, "train", "--resume", "orphans")])
    assert "resumed after step" in said


@pytest.mark.slow
def test_the_first_replica_tells_what_is_wrong(workshop):
    process = start(
        workshop,
        "train",
        *SHARED,
        "--batch-size",
        "3",
        "--strategy",
        "mirrored",
        "--replicas",
        "2",
        "--output",
        "odd",
    )
    said = process.communicate(timeout=280)[0]
    assert process.returncode == 2 and said.count("--batch-size 3 cannot be divided among 2 processes") == 1


@pytest.mark.parametrize(
    "first, second, expected",
    [
        (
            "sleep 0.5; exit 2",
            "echo et-train: wrong >&2; exit 2",
            (SystemExit, "2"),
        ),  # both refuse: the first one has said so
        ("sleep 0.5; exit 1", "echo et-train: no disk >&2; exit 1", (RunError, "replica 1 failed: no disk")),
        ("sleep 0.5", "kill -9 $$", (RunError, "replica 1 failed: it was killed")),
        ("exit 1", "sleep 0.5; exit 1", (SystemExit, "1")),
        ("exit 0", "exit 0", None),
    ],
)
def test_who_is_named_when_replicas_fail(monkeypatch, tmp_path, first, second, expected):
    from elastictrainer.training import launcher

    shell = lambda argv, **options: subprocess.Popen(["sh", "-c", argv[-1]], **options)  # noqa: E731
    monkeypatch.setattr(
        launcher, "subprocess", SimpleNamespace(Popen=shell, DEVNULL=subprocess.DEVNULL, PIPE=subprocess.PIPE)
    )
    if expected is None:
        return launcher.train([[first], [second]], [None, None], str(tmp_path))
    with pytest.raises(expected[0], match=expected[1]):
        launcher.train([[first], [second]], [None, None], str(tmp_path))


def test_each_process_draws_random_numbers_of_its_own():
    import tensorflow as tf

    from elastictrainer.experiment import assembly
    from elastictrainer.training.workers import decorrelate

    def drawn(rank):
        assembly.configure(seed=3)
        model = tf.keras.Sequential(
            [tf.keras.Input((100,)), tf.keras.layers.Dropout(0.5), tf.keras.layers.Dense(1)]
        )
        decorrelate(model, rank)
        return [model.layers[0](np.ones((1, 100), "float32"), training=True).numpy() for _ in range(2)]

    first, again, second = drawn(0), drawn(0), drawn(1)
    np.testing.assert_array_equal(first, again)
    assert all(0.2 < np.mean(a != b) < 0.8 for a in first for b in second)


def test_each_process_reads_its_share(tmp_path):
    from dataclasses import replace

    from elastictrainer.data.datasets import load

    make_images(tmp_path / "images", train=7)
    whole = load(str(tmp_path / "images"), 4, (8, 8))
    parts = [replace(whole, part=(k, 2)) for k in range(2)]
    assert {part.steps_per_epoch for part in parts} == {whole.steps_per_epoch}
    for first in (0, 1):
        together = list(whole.train(1, first))
        shares = [list(part.train(1, first)) for part in parts]
        assert len(together) == len(shares[0]) == len(shares[1])
        for (x, y), (x0, y0), (x1, y1) in zip(together, *shares):
            np.testing.assert_array_equal(x[0::2], x0)
            np.testing.assert_array_equal(x[1::2], x1)
            np.testing.assert_array_equal(np.stack([y0, y1], 1).ravel(), y)
    tested = [np.concatenate([y for _, y in part.test()]) for part in (whole, *parts)]
    assert sorted(tested[0]) == sorted(np.concatenate(tested[1:])) and len(tested[1]) >= len(tested[2]) > 0
    with pytest.raises(UsageError, match="cannot be divided among 3"):
        replace(whole, part=(0, 3))


def test_checkpoints_go_back_to_what_all_have(tmp_path):
    import tensorflow as tf

    from elastictrainer.training.checkpoints import Checkpoints

    variable = tf.Variable([0.0])
    checkpoints = Checkpoints(tmp_path / "checkpoints", values=[variable])
    for step in (1, 2, 3):
        variable.assign([float(step)])
        checkpoints.save(step, {"step": step})
    assert checkpoints.restore(pytest.fail, lambda step: step - 1) == {"step": 2} and variable.numpy()[0] == 2
    assert [path.name for path in checkpoints.saved()] == ["step-000000002"]
    with pytest.raises(RunError, match="no checkpoint of step 1"):
        checkpoints.restore(pytest.fail, lambda step: 1)
    with pytest.raises(RunError, match="another process has damaged checkpoints only"):
        checkpoints.restore(pytest.fail, lambda step: -1)
    assert [path.name for path in checkpoints.saved()] == [
        "step-000000002"
    ]  # nothing is lost where it goes wrong
    variable.assign([7.0])
    assert (
        checkpoints.restore(pytest.fail, lambda step: 0) is None
    )  # another has none yet: all begin at the beginning
    assert variable.numpy()[0] == 7 and not checkpoints.saved()
    said = []
    for step in (1, 2):
        checkpoints.save(step, {"step": step})
    with pytest.raises(
        RunError, match="another process has no checkpoint"
    ):  # it had one once: nothing is thrown away for it
        checkpoints.restore(pytest.fail, lambda step: 0)
    assert len(checkpoints.saved()) == 2
    for path in checkpoints.saved():
        next(path.glob("variables.data*")).write_bytes(b"")
    told = []
    with pytest.raises(RunError, match="can be read"):
        checkpoints.restore(said.append, lambda step: told.append(step) or -1)
    assert told == [-1] and len(said) == 2 and len(checkpoints.saved()) == 2


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
    from elastictrainer.training import workers

    monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(UsageError, match='"cluster": {"worker"'):
        workers.create("multi-worker")


def test_a_strategy_that_cannot_be_had_is_told(monkeypatch):
    import tensorflow as tf

    from elastictrainer.training import launcher, workers

    assert workers.create("none") is None
    with pytest.raises(UsageError, match="none, multi-worker, mirrored"):
        workers.create("tpu")
    assert launcher.devices(3) == [None] * 3
    with pytest.raises(UsageError, match="--replicas 2"):
        launcher.devices(None)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["a", "b", "c"])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert launcher.devices(None) == ["0", "1", "2"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6,7")
    assert launcher.devices(2) == ["4", "6"]
    with pytest.raises(UsageError, match="TensorFlow sees 3 GPUs"):
        launcher.devices(4)
