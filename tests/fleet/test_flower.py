"""The fleet under Flower, its messages handed over within this process; and what happens without Flower."""

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
    """A Grid of clients in this process; some can be made to lie, or to die."""

    def __init__(self, flwr, config, count):
        from flwr.app import Context, RecordDict

        self.contexts = {
            100 + k: Context(
                1, 100 + k, {"partition-id": k, "num-partitions": count}, RecordDict(), dict(config)
            )
            for k in range(count)
        }
        # By node: how its answers to "train" and "query" change; who answers no more; who cannot train.
        self.spoil, self.spoil_query, self.dead, self.failing = {}, {}, set(), set()
        self.late, self.twice, self.asked = set(), set(), []

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
                replies.append(Message(Error(1, "Traceback:\nValueError: no images"), reply_to=message))
                continue
            for _ in range(2 if node in self.twice else 1):
                reply = app(message, self.contexts[node])
                spoil = (self.spoil if kind == "train" else self.spoil_query).get(node)
                if spoil:
                    spoil(reply.content)
                replies.append(reply)
        if self.late and any(kind == "train" for _, kind in self.asked):
            self.late = set()  # they have come
        return replies


@pytest.fixture
def fleet(flwr, tf, tmp_path):
    """Run a fleet of three clients; returns rounds.csv's rows. `run.nodes` are those of the latest run."""
    import csv

    from flwr.app import Context, RecordDict
    from flwr.supercore.task_identity import TaskIdentity

    # Flower says so in a server's process before it loads the app.
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1

    def run(spoil=(), spoil_query=(), dead=(), failing=(), late=(), twice=(), **options):
        from elastictrainer.fleet.server_app import main

        options = {"clients": 3, "output": str(tmp_path / "out"), **options}
        settings = fleet_settings(tmp_path, **options)
        config = {name.replace("_", "-"): value for name, value in vars(settings).items()}
        run.nodes = nodes = Nodes(flwr, config, 3)
        nodes.spoil, nodes.spoil_query = dict(spoil), dict(spoil_query)
        nodes.dead, nodes.failing, nodes.late, nodes.twice = set(dead), set(failing), set(late), set(twice)
        main(nodes, Context(1, 0, {}, RecordDict(), config))
        return list(csv.DictReader(open(tmp_path / "out" / "rounds.csv")))

    return run


def test_a_fleet_trains_within_the_time_of_its_rounds(fleet, tmp_path):
    rows = fleet(slow_downs="1,1,4")
    assert [row["round"] for row in rows] == ["0", "1", "2"]
    assert [row["trained"] for row in rows] == ["", "3", "3"]
    assert float(rows[-1]["accuracy"]) > 0.8
    assert (tmp_path / "out" / "model.keras").exists()


@pytest.mark.parametrize("value", [np.nan, 1e30])
def test_a_poisoned_update_is_refused_with_the_name_of_its_client(fleet, said, value):
    from flwr.app import Array

    def poison(content):
        for key, array in list(content["arrays"].items()):
            content["arrays"][key] = Array(np.full_like(array.numpy(), value))

    rows = fleet(spoil={101: poison})
    assert [row["refused"] for row in rows] == ["", "1", "1"]
    assert "client 1: refused: tensor" in "\n".join(said) and "client 0" not in "\n".join(said)
    assert np.isfinite(float(rows[-1]["loss"]))


def nonsense(content):
    """Arrays whose bytes are no array."""
    for array in content["arrays"].values():
        array.data = b"nonsense"


def immense(content):
    """Arrays whose header promises more than any memory holds."""
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000000,), }"
    for array in content["arrays"].values():
        array.data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header


@pytest.mark.parametrize(
    "spoil",
    [
        lambda content: content.pop("metrics"),
        lambda content: content["metrics"].update({"seconds": float("nan")}),
        lambda content: content["metrics"].update({"num-examples": float("inf")}),
        lambda content: content["metrics"].update({"num-examples": 10**9}),
        lambda content: content.update({"arrays": content["metrics"]}),
        nonsense,
        immense,
    ],
    ids=["no metrics", "nan seconds", "inf examples", "10^9 examples", "no arrays", "nonsense", "immense"],
)
def test_an_answer_that_cannot_be_read_is_refused_too(fleet, said, spoil):
    rows = fleet(spoil={102: spoil})
    assert rows[-1]["refused"] == "1" and "client 2: refused: " in "\n".join(said)
    assert np.isfinite(float(rows[-1]["seconds"]))


def test_a_client_that_does_not_answer_is_left_out(fleet, said):
    rows = fleet(dead={101}, failing={102})
    assert rows[-1]["trained"] == "1" and rows[-1]["silent"] == "2" and rows[-1]["refused"] == "0"
    assert "node 101: no answer" in "\n".join(said)
    assert "client 2: ValueError: no images" in "\n".join(said)


def many_images(content):
    """Statistics of 10^9 images; all but their number is plausible."""
    from flwr.app import Array

    arrays = content["arrays"]
    counts = arrays["counts"].numpy()
    for name in list(arrays):
        arrays[name] = Array(arrays[name].numpy() * np.float32(1e9 / counts.sum()))


def test_a_client_with_made_up_images_is_out_from_its_first_word(fleet, said):
    rows = fleet(spoil_query={101: many_images})
    assert "client 1: refused: " in "\n".join(said)
    assert [row["trained"] for row in rows] == ["", "2", "2"]
    assert (101, "train") not in fleet.nodes.asked, "what it trains is of no use"


def test_a_late_client_describes_its_images_before_it_trains(fleet, said):
    def greedy(content):
        content["metrics"]["num-examples"] = 10**9

    rows = fleet(late={102}, clients=2, rounds=3, spoil={102: greedy})
    of_late = [kind for node, kind in fleet.nodes.asked if node == 102]
    assert of_late == ["query", "train"], "it came after the first round"
    assert [row["trained"] for row in rows] == ["", "2", "2", "2"] and rows[-1]["refused"] == "1"
    assert "client 2: refused: it says that it trained on 1000000000 examples" in "\n".join(said)


def test_a_late_client_with_made_up_images_never_trains(fleet, said):
    fleet(late={102}, clients=2, rounds=3, spoil_query={102: many_images})
    assert [kind for node, kind in fleet.nodes.asked if node == 102] == ["query"]
    assert "client 2: refused: " in "\n".join(said)


def test_a_second_answer_of_a_client_does_not_count(fleet):
    once, twice = fleet(seed=3), fleet(seed=3, twice={101})
    for name in ("trained", "accuracy", "loss", "megabytes"):
        assert [row[name] for row in once] == [row[name] for row in twice]


def test_clients_cannot_take_the_name_of_others_nor_write_lines_of_their_own(fleet, said):
    def named(name):
        return lambda content: content["about"].update({"name": name})

    def poison(content):
        content["metrics"]["num-examples"] = 10**9

    fleet(
        spoil_query={101: named("client 0"), 102: named("x\nfleet: client 0: refused: lies" + "y" * 900)},
        spoil={101: poison, 102: poison},
    )
    assert "client 0 (node 101): refused" in "\n".join(said)
    assert not any(line.startswith("fleet: client 0: refused") for line in said)
    assert all("\n" not in line and len(line) < 300 for line in said)


def test_each_round_says_what_it_got_and_how_long_the_rest_takes(fleet, said):
    fleet()
    lines = [line for line in said if line.startswith("fleet: round ")]
    assert [line.split(":")[1] for line in lines] == [" round 1 of 2", " round 2 of 2"]
    assert all("accuracy " in line and "3 trained" in line for line in lines)
    assert lines[0].endswith(" left") and "; all took " in lines[1]


def test_images_in_files_are_decoded_once_for_all_rounds_and_clients(flwr, tf, image_folder):
    from elastictrainer.fleet import client_app
    from elastictrainer.fleet.settings import FleetSettings

    settings = FleetSettings(dataset=str(image_folder), image_size=16, batch_size=2, concentration=100.0)
    first, second = (client_app._share(settings, partition, 2) for partition in range(2))
    assert first.train_split.count + second.train_split.count == 24
    assert first.train_split.images.dtype == np.uint8 and list(first.splits) == ["train"]
    own = client_app._own(settings, str(image_folder), ("dark", "light", "other"), (8, 8))
    assert own.train_split.images.shape == (24, 8, 8, 3) and list(own.splits) == ["train"]
