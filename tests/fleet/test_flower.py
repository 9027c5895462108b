"""The fleet under Flower, its messages handed over within this process; and what happens without Flower."""

import logging
import subprocess
import sys

import numpy as np
import pytest

from fleet_builders import fleet_settings

WITHOUT = """
import sys
sys.modules["flwr"] = None
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "flwr" else find(name, *rest)
import elastictrainer.fleet, elastictrainer.fleet.partial_average
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
        # By node: how its training answer changes; who answers no more; who cannot train.
        self.spoil, self.dead, self.failing = {}, set(), set()

    def get_node_ids(self):
        return list(self.contexts)

    def send_and_receive(self, messages, *, timeout=None):
        from flwr.app import Error, Message

        from elastictrainer.fleet.client_app import app

        replies = []
        for message in messages:
            node = message.metadata.dst_node_id
            if node in self.dead:
                continue
            if message.metadata.message_type == "train" and node in self.failing:
                replies.append(Message(Error(1, "Traceback:\nValueError: no images"), reply_to=message))
                continue
            reply = app(message, self.contexts[node])
            if message.metadata.message_type == "train" and node in self.spoil:
                self.spoil[node](reply.content)
            replies.append(reply)
        return replies


@pytest.fixture
def fleet(flwr, tf, tmp_path):
    """Run a fleet of three clients; returns rounds.csv's rows."""
    import csv

    from flwr.app import Context, RecordDict
    from flwr.supercore.task_identity import TaskIdentity

    # Flower says so in a server's process before it loads the app.
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1

    def run(spoil=(), dead=(), failing=(), **options):
        from elastictrainer.fleet.server_app import main

        settings = fleet_settings(tmp_path, clients=3, output=str(tmp_path / "out"), **options)
        config = {name.replace("_", "-"): value for name, value in vars(settings).items()}
        nodes = Nodes(flwr, config, 3)
        nodes.spoil, nodes.dead, nodes.failing = dict(spoil), set(dead), set(failing)
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
def test_a_poisoned_update_is_refused_with_the_name_of_its_client(fleet, caplog, value):
    from flwr.app import Array

    def poison(content):
        for key, array in list(content["arrays"].items()):
            content["arrays"][key] = Array(np.full_like(array.numpy(), value))

    caplog.set_level(logging.WARNING, "flwr")
    logging.getLogger("flwr").propagate = True
    rows = fleet(spoil={101: poison})
    assert [row["refused"] for row in rows] == ["", "1", "1"]
    assert "client 1: refused: tensor" in caplog.text and "client 0" not in caplog.text
    assert np.isfinite(float(rows[-1]["loss"]))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda content: content.pop("metrics"),
        lambda content: content["metrics"].update({"seconds": float("nan")}),
    ],
    ids=["no metrics", "no seconds"],
)
def test_an_answer_that_cannot_be_read_is_refused_too(fleet, caplog, spoil):
    caplog.set_level(logging.WARNING, "flwr")
    logging.getLogger("flwr").propagate = True
    rows = fleet(spoil={102: spoil})
    assert rows[-1]["refused"] == "1" and "client 2: refused: " in caplog.text
    assert np.isfinite(float(rows[-1]["seconds"]))


def test_a_client_that_does_not_answer_is_left_out(fleet, caplog):
    caplog.set_level(logging.WARNING, "flwr")
    logging.getLogger("flwr").propagate = True
    rows = fleet(dead={101}, failing={102})
    assert rows[-1]["trained"] == "1" and rows[-1]["silent"] == "2" and rows[-1]["refused"] == "0"
    assert "node 101: no answer" in caplog.text
    assert "client 2: ValueError: no images" in caplog.text


def test_images_in_files_are_decoded_once_for_all_rounds_and_clients(flwr, tf, image_folder):
    from elastictrainer.fleet import client_app
    from elastictrainer.fleet.settings import FleetSettings

    settings = FleetSettings(dataset=str(image_folder), image_size=16, batch_size=2, concentration=100.0)
    first, second = (client_app._share(settings, partition, 2) for partition in range(2))
    assert first.train_split.count + second.train_split.count == 24
    assert first.train_split.images.dtype == np.uint8 and list(first.splits) == ["train"]
    own = client_app._own(settings, str(image_folder), ("dark", "light", "other"), (8, 8))
    assert own.train_split.images.shape == (24, 8, 8, 3) and list(own.splits) == ["train"]
