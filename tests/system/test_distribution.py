"""Two real processes on the loopback against one."""

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from builders import make_images
from elastictrainer import TensorTimings
from processes import Process, finished

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


def finish(processes):
    """Return the output of each; all must succeed."""
    try:
        return [finished(process) for process in processes]
    finally:
        for process in processes:
            process.kill()


def selections(folder):
    return [json.loads(line)["selected"] for line in (folder / "selections.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    """Images, and profiles of a chain, for one process and for one of two: selections as on any machine."""
    folder = tmp_path_factory.mktemp("workers")
    make_images(folder / "images", train=24)
    finish(
        [
            Process(
                folder,
                "et-profile",
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
        if name == "replica":
            chain.reuse = measured.reuse
            chain.save(folder / "recording.json")
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
    """Both processes of run `name` have the same weights and selections; one alone comes to them as well."""
    finish(
        [
            Process(
                workshop,
                "et-train",
                *options(scheme),
                "--profile",
                "alone.json",
                "--output",
                f"{scheme}-one",
                "--deterministic",
                "--reuse",
                "off",
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
            Process(
                workshop,
                "et-train",
                *options("full"),
                "--profile",
                "share.json",
                "--output",
                "two",
                "--strategy",
                "multi-worker",
                environment={
                    "TF_CONFIG": json.dumps(
                        {"cluster": {"worker": cluster}, "task": {"type": "worker", "index": rank}}
                    )
                },
            )
            for rank in (0, 1)
        ]
    )
    assert_as_one_process(workshop, "full", "two")


@pytest.fixture(scope="module")
def mirrored(workshop):
    """A run of two replicas that was left alone; what it said."""
    (said,) = finish([Process(workshop, "et-train", *options("elastic"), *MIRRORED, "--output", "both")])
    return said


@pytest.mark.slow
def test_replicas_reach_the_weights_and_selections_of_one_process(workshop, mirrored):
    chosen = [selections(folder) for folder in assert_as_one_process(workshop, "elastic", "both")]
    assert chosen[0] == chosen[1] == chosen[2] and 0 < len(chosen[0][-1]) < len(weights(workshop / "both"))
    assert mirrored.count("test accuracy: best") == 1


@pytest.mark.slow
def test_a_callback_of_one_replica_ends_the_run_of_both(workshop):
    stopping = ("--callback", "usercallbacks:FirstOfAllStops", "--output", "stopped")
    finish([Process(workshop, "et-train", *options("full"), *MIRRORED, *stopping)])
    for name in ("stopped", "stopped-worker1"):
        summary = json.loads((workshop / name / "summary.json").read_text())
        assert summary["epochs"] == 1, name


def last_step(folder):
    """Of the newest checkpoint; -1 where there is none."""
    return max(
        (int(p.name[5:]) for p in folder.glob("checkpoints/step-*") if p.name[5:].isdigit()), default=-1
    )


def wait_for_step(folder, process, step):
    """Until there is a checkpoint of that step or a later one."""
    until = time.monotonic() + 150
    while last_step(folder) < step:
        assert process.poll() is None and time.monotonic() < until, process.said()
        time.sleep(0.01)


def children(process):
    """Process ids of the replicas it started, the first one first."""
    pids = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return sorted(int(pid) for pid in pids if b"cli.train" in Path(f"/proc/{pid}/cmdline").read_bytes())


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the replicas through /proc")
def test_replicas_that_were_killed_or_interrupted_go_on_together(workshop, mirrored):
    launched = Process(workshop, "et-train", *options("elastic"), *MIRRORED, "--output", "cut")
    wait_for_step(workshop / "cut", launched, 5)
    os.kill(children(launched)[1], signal.SIGKILL)
    said = launched.said()
    assert (
        launched.poll() == 1 and "replica 1 failed: it was killed. Go on with: et-train --resume cut" in said
    )
    before = last_step(workshop / "cut")
    launched = Process(workshop, "et-train", "--resume", "cut")
    wait_for_step(workshop / "cut", launched, before + 1)
    launched.send_signal(signal.SIGINT)
    said = launched.said()
    assert launched.poll() == 130 and said.count("Go on with: et-train --resume cut") == 1
    assert not (workshop / "cut" / "summary.json").exists()
    (said,) = finish([Process(workshop, "et-train", "--resume", "cut")])
    assert "resumed after step" in said
    for folder in ("cut", "cut-worker1"):
        for a, b in zip(weights(workshop / "both"), weights(workshop / folder)):
            np.testing.assert_array_equal(a, b)
        assert selections(workshop / folder) == selections(workshop / "both")


@pytest.mark.slow
def test_replicas_of_a_background_job_can_be_terminated(workshop):
    """A shell's background job, and what it starts, ignores SIGINT."""
    launched = Process(
        workshop, "et-train", *options("full"), *MIRRORED, "--output", "background", ignored=[signal.SIGINT]
    )
    wait_for_step(workshop / "background", launched, 5)
    launched.terminate()
    said = launched.said()
    assert launched.poll() == 130 and said.count("Go on with: et-train --resume background") == 1
    assert not (workshop / "background" / "summary.json").exists()


DEEPER = ("--model", "usermodels:residual", "--image-size", "32", "--dataset", "images")
RECORDING = (
    *(*DEEPER, "--batch-size", "4", "--rho", "0.5", "--epochs", "8", "--interval", "4"),
    *("--importance-batches", "2", "--profile", "deeper.json", *MIRRORED[2:]),
)


@pytest.fixture(scope="module")
def recording(workshop):
    """A run of two replicas that record their own shares, left alone; its folders."""
    measure = (*DEEPER, "--batch-size", "2", "--output", "deeper.json", "--steps", "2")
    finish([Process(workshop, "et-profile", *measure)])
    profile = json.loads((workshop / "deeper.json").read_text())
    threads = profile["metadata"]["threads"]
    threads["intra_op"] = max(1, threads["processors"] // 2)
    # On a busy machine it may not pay to record steps of a millisecond; here it does.
    profile["reuse"].update(
        dict.fromkeys(("write_ms", "write_ms_per_mb", "read_ms", "read_ms_per_mb"), 1e-3), slower=0.0
    )
    (workshop / "deeper.json").write_text(json.dumps(profile))
    (said,) = finish([Process(workshop, "et-train", *RECORDING, "--output", "recorded")])
    assert "cached activations" in said
    return [workshop / name for name in ("recorded", "recorded-worker1")]


@pytest.mark.slow
def test_replicas_record_and_replay_their_own_shares(workshop, recording):
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in recording]
    assert summaries[0]["replayed_share"] == summaries[1]["replayed_share"] >= 0.5
    assert all(summary["recorded_bytes"] for summary in summaries)
    for a, b in zip(*map(weights, recording)):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the replicas through /proc")
def test_replicas_killed_while_they_replay_go_on_as_if_they_were_not(workshop, recording):
    launched = Process(workshop, "et-train", *RECORDING, "--output", "shares")
    wait_for_step(workshop / "shares", launched, 12 * 3 + 5)  # in the fourth epoch of 12 steps
    for replica in children(launched):
        os.kill(replica, signal.SIGKILL)
    launched.said()
    (said,) = finish([Process(workshop, "et-train", "--resume", "shares")])
    assert "writing the cache again" in said
    for folder, whole in zip(("shares", "shares-worker1"), recording):
        for a, b in zip(weights(workshop / folder), weights(whole)):
            np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_replicas_give_up_recording_together(workshop):
    """The second one has no room for its share; both do all work in every step from there on."""
    code = """
import os
if '"index": 1' in os.environ.get("TF_CONFIG", ""):
    from elastictrainer.reuse import cache_storage

    def add(self, rows):
        raise cache_storage.CacheError("the disk is full")

    cache_storage.CacheStorage.add = add
"""
    (workshop / "fails").mkdir()
    (workshop / "fails" / "sitecustomize.py").write_text(code)
    path = os.pathsep.join([str(workshop / "fails"), str(Path(__file__).parents[1]), *sys.path])
    (said,) = finish(
        [Process(workshop, "et-train", *RECORDING, "--output", "together", environment={"PYTHONPATH": path})]
    )
    assert "not cached: process 1 cannot" in said
    summaries = [
        json.loads((workshop / name / "summary.json").read_text())
        for name in ("together", "together-worker1")
    ]
    assert [summary["replayed_share"] for summary in summaries] == [0.0, 0.0]
    for a, b in zip(*(weights(workshop / name) for name in ("together", "together-worker1"))):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the replicas through /proc")
def test_a_first_replica_that_was_killed_is_told(workshop):
    launched = Process(workshop, "et-train", *options("full"), *MIRRORED, "--output", "first")
    wait_for_step(workshop / "first", launched, 5)
    os.kill(children(launched)[0], signal.SIGKILL)
    said = launched.said()
    assert (
        launched.poll() == 1
        and "replica 0 failed: it was killed. Go on with: et-train --resume first" in said
    )


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the replicas through /proc")
def test_replicas_do_not_outlive_what_started_them(workshop):
    launched = Process(workshop, "et-train", *options("full"), *MIRRORED, "--output", "orphans")
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
    (said,) = finish([Process(workshop, "et-train", "--resume", "orphans")])
    assert "resumed after step" in said


@pytest.mark.slow
def test_the_first_replica_tells_what_is_wrong(workshop):
    process = Process(
        workshop,
        "et-train",
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
    said = process.said()
    assert process.poll() == 2 and said.count("--batch-size 3 cannot be divided among 2 processes") == 1
