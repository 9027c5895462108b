"""The fleet under Flower, its messages handed over within this process; and what happens without Flower."""

import io
import itertools
import subprocess
import sys

import numpy as np
import pytest

from fleet_builders import fleet_settings
from log_lines import listen

WITHOUT = """
import sys
sys.modules["flwr"] = None
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "flwr" else find(name, *rest)
import elastictrainer.fleet, elastictrainer.fleet.answers
from elastictrainer.fleet.__main__ import main
sys.exit(main())
"""


def test_without_flower_there_is_one_line_with_the_command():
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and "pip install" in done.stderr and ".[flower]" in done.stderr


@pytest.fixture(scope="module")
def flwr():
    return pytest.importorskip("flwr", reason='Flower is not installed: pip install ".[flower]"')


@pytest.fixture
def said():
    """The lines of the log."""
    return listen()


class Nodes:
    """A Grid of clients in this process; some can be made to lie, or to die.

    Attributes:
        spoil, spoil_query: by node, what changes its answers to "train" and "query".
        dead, failing, late, twice: nodes that answer no more, that cannot train, that come after the first
            round of training, and that answer twice.
        asked: (node, kind) of each message.
    """

    def __init__(self, config, count, spoil=(), spoil_query=(), dead=(), failing=(), late=(), twice=()):
        from flwr.app import Context, RecordDict

        of = {"num-partitions": count}
        self.contexts = {
            100 + k: Context(1, 100 + k, {"partition-id": k, **of}, RecordDict(), dict(config))
            for k in range(count)
        }
        self.spoil = {"train": dict(spoil), "query": dict(spoil_query)}
        self.dead, self.failing, self.late, self.twice = dead, failing, late, twice
        self.asked = []

    def get_node_ids(self):
        return [node for node in self.contexts if node not in self.late]

    def send_and_receive(self, messages, *, timeout=None):
        from flwr.app import Error, Message

        from elastictrainer.fleet.client_app import app

        replies = []
        for message in messages:
            node, kind = message.metadata.dst_node_id, message.metadata.message_type
            self.asked.append((node, kind))
            if node in self.dead:
                continue
            if kind == "train" and node in self.failing:
                said = "Traceback:\nValueError: no \x1b[2Jimages"
                replies.append(Message(Error(1, said), reply_to=message))
                continue
            for _ in range(2 if node in self.twice else 1):
                reply = app(message, self.contexts[node])
                self.spoil[kind].get(node, len)(reply.content)
                replies.append(reply)
        if any(kind == "train" for _, kind in self.asked):
            self.late = ()  # they have come
        return replies


@pytest.fixture
def fleet(flwr, tf, tmp_path):
    """Run a fleet, of three clients unless told; returns rounds.csv's rows.

    `run.nodes` and `run.output` are the latest run's.
    """
    import csv

    from flwr.app import Context, RecordDict
    from flwr.supercore.task_identity import TaskIdentity

    # Flower says so in a server's process before it loads the app.
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
    numbers = itertools.count()

    def run(nodes=3, settings=(), **behaviour):
        from elastictrainer.fleet.server_app import main

        run.output = tmp_path / f"out{next(numbers)}"
        settings = fleet_settings(tmp_path, **{"clients": 2, "output": str(run.output), **dict(settings)})
        config = {name.replace("_", "-"): value for name, value in vars(settings).items()}
        run.nodes = Nodes(config, nodes, **behaviour)
        main(run.nodes, Context(1, 0, {}, RecordDict(), config))
        return list(csv.DictReader(open(run.output / "rounds.csv")))

    return run


def test_a_fleet_trains_within_the_time_of_its_rounds_and_says_how_far_it_is(fleet, said):
    rows = fleet(settings={"slow_downs": "1,1,4"})
    assert [row["round"] for row in rows] == ["0", "1", "2"]
    assert [(row["trained"], row["refused"]) for row in rows] == [("", ""), ("3", "0"), ("3", "0")]
    assert float(rows[-1]["accuracy"]) > 0.8
    assert (fleet.output / "model.keras").exists()
    lines = [line for line in said if line.startswith("fleet: round ")]
    assert [line.split(":")[1] for line in lines] == [" round 1 of 2", " round 2 of 2"]
    assert all("accuracy " in line and "3 trained" in line for line in lines)
    assert lines[0].endswith(" left") and "; all took " in lines[1]


def arrays_as(change):
    """Change the values of each array."""

    def spoil(content):
        from flwr.app import Array

        for name, array in list(content["arrays"].items()):
            content["arrays"][name] = Array(change(array.numpy()))

    return spoil


def bytes_as(data):
    """Send these bytes in the place of those of each array."""

    def spoil(content):
        for array in content["arrays"].values():
            array.data = data

    return spoil


def figure(name, value):
    return lambda content: content["metrics"].update({name: value})


HEADER = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000000,), }"  # more than any memory
IMMENSE = b"\x93NUMPY\x01\x00" + len(HEADER).to_bytes(2, "little") + HEADER
ARCHIVE = io.BytesIO()
np.savez(ARCHIVE, np.zeros(1))
# What a client sends after a round, and how the line about it begins.
SPOILT = {
    "not finite": (arrays_as(lambda v: v * np.float32(np.nan)), "tensor "),
    "a huge value": (arrays_as(lambda v: np.full_like(v, 1e30)), "tensor "),
    "no metrics": (lambda content: content.pop("metrics"), "its answer cannot be read"),
    "no arrays": (
        lambda content: content.update({"arrays": content["metrics"]}),
        "its answer cannot be read",
    ),
    "nonsense": (bytes_as(b"nonsense"), "its answer cannot be read"),
    "immense": (bytes_as(IMMENSE), "its answer cannot be read"),
    "an archive": (bytes_as(ARCHIVE.getvalue()), "an archive"),
    "seconds": (figure("seconds", float("nan")), "it says that it trained for nan s"),
    "infinite": (figure("num-examples", float("inf")), "its answer cannot be read"),
    "examples": (figure("num-examples", 10**9), "it says that it trained on 1000000000 examples"),
    "digits": (figure("num-examples", 1e300), "it says that it trained on 1000000000"),
}


def test_what_no_sound_client_sends_is_refused_with_its_name(fleet, said):
    spoil = {101 + k: change for k, (change, _) in enumerate(SPOILT.values())}
    rows = fleet(1 + len(spoil), {"concentration": 100.0, "rounds": 1}, spoil=spoil)
    assert (rows[-1]["trained"], rows[-1]["refused"]) == ("1", str(len(SPOILT)))
    for k, (_, begins) in enumerate(SPOILT.values(), 1):
        assert any(line.startswith(f"fleet: client {k}: refused: {begins}") for line in said), k
    assert not any("client 0" in line or len(line) > 300 for line in said)
    assert np.isfinite([float(rows[-1]["seconds"]), float(rows[-1]["loss"])]).all()


def test_a_client_that_does_not_answer_is_left_out(fleet, said):
    rows = fleet(dead={101}, failing={102})
    assert rows[-1]["trained"] == "1" and rows[-1]["silent"] == "2" and rows[-1]["refused"] == "0"
    assert "fleet: node 101: no answer; the round goes on without it" in said
    assert "fleet: client 2: ValueError: no [2Jimages; the round goes on without it" in said


def many_images(content):
    """Statistics of 10^9 images; all but their number is plausible."""
    factor = np.float32(1e9 / content["arrays"]["counts"].numpy().sum())
    arrays_as(lambda v: v * factor)(content)


def test_made_up_images_and_times_are_out_from_the_first_word_whenever_it_is_said(fleet, said):
    rows = fleet(
        6,
        {"concentration": 100.0, "rounds": 3},
        late={104, 105},
        spoil_query={
            101: many_images,
            102: figure("full-seconds", 1e300),
            103: lambda content: content["metrics"].update({"full-seconds": 0.0, "pass-seconds": 0.0}),
            104: many_images,
        },
        spoil={105: figure("num-examples", 10**9)},
    )
    asked = {node: [kind for other, kind in fleet.nodes.asked if other == node] for node in range(101, 106)}
    assert asked == {**dict.fromkeys(range(101, 105), ["query"]), 105: ["query", "train"]}
    assert [(row["trained"], row["refused"]) for row in rows[1:]] == [("1", "0"), ("1", "1"), ("1", "1")]
    text = "\n".join(said)
    for client, why in {1: "it says that it has", 2: "passes", 3: "passes", 4: "it says that it has"}.items():
        assert f"client {client}: refused: {why}" in text
    assert "client 5: refused: it says that it trained on 1000000000 examples" in text


def test_a_second_answer_of_a_client_does_not_count(fleet):
    once, twice = (fleet(settings={"seed": 3}, twice=nodes) for nodes in ((), {101}))
    for name in ("trained", "accuracy", "loss", "megabytes"):
        assert [row[name] for row in once] == [row[name] for row in twice]


def test_clients_cannot_take_the_name_of_others_nor_write_lines_of_their_own(fleet, said):
    def named(name):
        return lambda content: content["about"].update({"name": name})

    names = ["client 0", "x\nfleet: client 0: refused: lies" + "y" * 900, "node 104", ""]
    nodes = range(101, 101 + len(names))
    fleet(
        5,
        {"concentration": 100.0, "rounds": 1},
        spoil_query={node: named(name) for node, name in zip(nodes, names)},
        spoil=dict.fromkeys(nodes, figure("num-examples", 10**9)),
    )
    refused = [line.split(": refused: it ")[0] for line in said if ": refused: it " in line]
    assert refused[0] == "fleet: client 0 (node 101)" and refused[1].startswith("fleet: x fleet: client 0: ")
    assert refused[2:] == ["fleet: node 104 (node 103)", "fleet: node 104"]
    assert all("\n" not in line and len(line) < 300 for line in said)


def test_images_in_files_are_decoded_once_for_all_rounds_and_clients(flwr, tf, image_folder):
    from elastictrainer.fleet import client_app
    from elastictrainer.fleet.settings import FleetSettings

    settings = FleetSettings(dataset=str(image_folder), image_size=16, batch_size=2, concentration=100.0)
    first, second = (client_app._share(settings, partition, 2) for partition in range(2))
    assert first.train_split.count + second.train_split.count == 24
    assert first.train_split.images.dtype == np.uint8 and list(first.splits) == ["train"]
    own = client_app._own(settings, str(image_folder), ("dark", "light", "other"), (8, 8))
    assert own.train_split.images.shape == (24, 8, 8, 3) and list(own.splits) == ["train"]
