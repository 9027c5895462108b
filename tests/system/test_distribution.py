"""Two real processes on the loopback against one."""

import json
import os
import socket
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from builders import make_images
from elastictrainer import Profile
from processes import Process, finished
from reuse_builders import reusable_chain

SHARED = (
    *"--model usermodels:good --dataset images --image-size 16 --learning-rate 0.003".split(),
    *"--epochs 2 --interval 1 --importance-batches 2".split(),
)

# Its times are replaced.
QUICK_PROFILE = ("--steps", "1", "--warmup-steps", "1", "--calibration-seconds", "0")


def addresses(count):
    """`count` ports of the loopback that are free."""
    with_ports = [socket.socket() for _ in range(count)]
    for one in with_ports:
        one.bind(("127.0.0.1", 0))
    found = [f"127.0.0.1:{one.getsockname()[1]}" for one in with_ports]
    for one in with_ports:
        one.close()
    return found


def start(folder, commands, **environment):
    """Both processes of a run, by the arguments of each."""
    cluster = {"worker": addresses(2)}
    return [
        Process(
            folder,
            "et-train",
            *arguments,
            environment={
                "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": rank}}),
                **environment,
            },
        )
        for rank, arguments in enumerate(commands)
    ]


def train(folder, *arguments, **environment):
    """Both processes of a run to their ends; what each says."""
    return finish(start(folder, [arguments] * 2, **environment))


def finish(processes):
    """Return the output of each; all must succeed."""
    try:
        return [finished(process) for process in processes]
    finally:
        for process in processes:
            process.kill()


def selections(folder):
    return [json.loads(line)["selected"] for line in (folder / "selections.jsonl").read_text().splitlines()]


def chain_like(measured, batch):
    """A chain of the tensors of a profile, for minibatches of that size."""
    n = len(measured)
    chain = Profile.from_chain(list(measured.names), 10.0, np.arange(1.0, n + 1), np.full(n, 2.0))
    chain.shapes, chain.metadata = measured.shapes, {**measured.metadata, "batch_size": batch}
    return chain


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
                *"--batch-size 2 --profile measured.json".split(),
                *QUICK_PROFILE,
            )
        ]
    )
    for name, batch in (("share", 2), ("alone", 4)):
        chain_like(Profile.load(folder / "measured.json"), batch).save(folder / f"{name}.json")
    return folder


def options(scheme):
    return (*SHARED, "--batch-size", "4", "--scheme", scheme, "--rho", "0.7")


SHARED_OUT = ("--profile", "share.json", "--strategy", "multi-worker", "--checkpoint-minutes", "0")


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
                *"--profile alone.json --output".split(),
                f"{scheme}-one",
                *"--deterministic --reuse off".split(),
            )
        ]
    )
    folders = [workshop / folder for folder in (f"{scheme}-one", name, f"{name}-worker1")]
    one, first, second = map(weights, folders)
    for alone, a, b in zip(one, first, second):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(a, alone, rtol=1e-4, atol=1e-6)
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in folders]
    assert summaries[1]["accuracy"] == summaries[2]["accuracy"] == pytest.approx(summaries[0]["accuracy"])
    assert summaries[1]["loss"] == pytest.approx(summaries[0]["loss"], rel=1e-4)
    return folders


@pytest.mark.slow
def test_two_workers_reach_the_weights_and_selections_of_one_process(workshop):
    train(workshop, *options("elastic"), *SHARED_OUT, "--output", "both")
    chosen = [selections(folder) for folder in assert_as_one_process(workshop, "elastic", "both")]
    assert chosen[0] == chosen[1] == chosen[2] and 0 < len(chosen[0][-1]) < len(weights(workshop / "both"))


@pytest.mark.long
def test_a_callback_of_one_worker_ends_the_run_of_both(workshop):
    stopping = ("--callback", "usercallbacks:FirstOfAllStops", "--output", "stopped")
    train(workshop, *options("full"), *SHARED_OUT, *stopping)
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


DEEPER = ("--model", "usermodels:residual", "--image-size", "32", "--dataset", "images")
RECORDING = (
    *(*DEEPER, "--batch-size", "4", "--rho", "0.5", "--epochs", "8", "--interval", "4"),
    *("--importance-batches", "2", "--profile", "deeper.json", *SHARED_OUT[2:]),
)


@pytest.fixture(scope="module")
def cached_run(workshop):
    """A run of two workers that record their own shares, left alone; its folders."""
    measure = (*DEEPER, "--batch-size", "2", "--profile", "deeper.json", *QUICK_PROFILE)
    finish([Process(workshop, "et-profile", *measure)])
    # On a busy machine it may not pay to record steps of a millisecond; here it does.
    reusable_chain(chain_like(Profile.load(workshop / "deeper.json"), 2)).save(workshop / "deeper.json")
    said = train(workshop, *RECORDING, "--output", "recorded")
    assert "cached activations" in said[0]
    return [workshop / name for name in ("recorded", "recorded-worker1")]


@pytest.mark.slow
def test_workers_write_and_read_their_own_shares(workshop, cached_run):
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in cached_run]
    assert summaries[0]["cached_share"] == summaries[1]["cached_share"] >= 0.5
    assert all(summary["cache_bytes"] for summary in summaries)
    for a, b in zip(*map(weights, cached_run)):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_workers_killed_while_they_read_the_cache_go_on_as_if_they_were_not(workshop, cached_run):
    lines = map(json.loads, (cached_run[0] / "selections.jsonl").read_text().splitlines())
    frozen = [line["cached"] and len(line["selected"]) < len(line["importance"]) for line in lines]
    interval = frozen.index(True)
    both = start(workshop, [(*RECORDING, "--output", "shares")] * 2)
    wait_for_step(
        workshop / "shares", both[0], 12 * (4 * interval + 2) + 5
    )  # of 12 steps in each of 4 epochs
    both[1].kill()
    said = both[0].said()
    assert both[0].poll() == 1 and "--resume" in said, said
    said = finish(start(workshop, [("--resume", name) for name in ("shares", "shares-worker1")]))
    assert "cache again" in said[0]
    for folder, whole in zip(("shares", "shares-worker1"), cached_run):
        assert selections(workshop / folder) == selections(whole)
        for a, b in zip(weights(workshop / folder), weights(whole)):
            np.testing.assert_array_equal(a, b)


@pytest.mark.long
def test_workers_give_up_caching_together(workshop, cached_run):
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
    said = train(workshop, *RECORDING, "--output", "together", PYTHONPATH=path)
    assert "not cached: process 1 " in said[0]
    names = ("together", "together-worker1")
    summaries = [json.loads((workshop / name / "summary.json").read_text()) for name in names]
    assert [summary["cached_share"] for summary in summaries] == [0.0, 0.0]
    for a, b in zip(*(weights(workshop / name) for name in names)):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_a_minibatch_that_cannot_be_divided_is_refused(workshop):
    odd = (*SHARED, "--batch-size", "3", "--strategy", "multi-worker", "--output", "odd")
    for process in start(workshop, [odd] * 2):
        said = process.said()
        assert process.poll() == 2 and "--batch-size 3 cannot be divided" in said, said
