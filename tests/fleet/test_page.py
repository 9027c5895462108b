"""docs/fleet.md: its first commands, on small data, with Flower's simulation engine."""

import csv
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from PIL import Image

PAGE = Path(__file__).resolve().parents[2] / "docs" / "fleet.md"
SMALL = "model='demo' image-size=24 batch-size=4 rounds=2"
POISONED = """# What client 1 sends back is not finite.
import numpy as np
from flwr.app import Array
from flwr.clientapp import ClientApp

from elastictrainer.fleet import client_app

app = ClientApp()
app.query()(client_app.describe)


@app.train()
def train(message, context):
    reply = client_app.train(message, context)
    if context.node_config["partition-id"] == 1:
        for key, array in list(reply.content["arrays"].items()):
            reply.content["arrays"][key] = Array(np.full_like(array.numpy(), np.nan))
    return reply
"""
COLOURS = {"black": (10, 10, 10), "grey": (120, 120, 120), "white": (240, 240, 240)}


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return str(taken.getsockname()[1])


@pytest.fixture
def home(tmp_path):
    """A folder with the images that the page names; what Flower keeps is in it, and what it starts ends."""
    for part, count in {"train": 40, "test": 4}.items():
        for label, colour in COLOURS.items():
            (tmp_path / "birds" / part / label).mkdir(parents=True)
            for k in range(count):
                shade = tuple(value + k % 12 for value in colour)
                Image.new("RGB", (24, 24), shade).save(tmp_path / "birds" / part / label / f"{k}.png")
    yield tmp_path
    for process in psutil.process_iter(["environ"]):
        if (process.info["environ"] or {}).get("FLWR_HOME") == str(tmp_path / "flwr"):
            process.kill()


def page_commands():
    block = re.search(r"^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL).group(1)
    return block.replace("\\\n", "").splitlines()


def run_small(home, run):
    """Run the page's `flwr run` with three clients and a small network.

    Returns what it printed, and the rows of rounds.csv.
    """
    pytest.importorskip("flwr", reason='Flower is not installed: pip install ".[flower]"')
    run = run.replace("model='mobilenetv2' rounds=10", SMALL)
    run = run.replace("num-supernodes=8", "num-supernodes=3 client-resources-num-cpus=1").replace(
        "clients=8", "clients=3 concentration=5.0"
    )
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(PAGE.parents[1]),
        "FLWR_HOME": str(home / "flwr"),
        "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": free_port(),
        "FLWR_LOCAL_CONTROL_API_PORT": free_port(),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
    }
    done = subprocess.run(
        ["bash", "-c", run], cwd=home, env=environment, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    with open(home / "fleet" / "rounds.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["round"] for row in rows] == ["0", "1", "2"], done.stdout[-3000:]
    return done.stdout, rows


@pytest.mark.slow
def test_the_page_trains_a_fleet_with_one_command(home):
    install, run = page_commands()
    assert install == 'pip install ".[flower]"'
    assert [word for word in shlex.split(run) if "rounds=" in word]
    _, rows = run_small(home, run)
    assert {row["trained"] for row in rows[1:]} == {"3"} and float(rows[0]["accuracy"]) > 0.6
    assert (home / "fleet" / "model.keras").exists()


@pytest.mark.long
def test_a_poisoned_update_is_refused_in_flowers_engine(home):
    shutil.copytree(PAGE.parents[1] / "elastictrainer" / "fleet" / "app", home / "app")
    (home / "app" / "poisoned.py").write_text(POISONED)
    about = home / "app" / "pyproject.toml"
    about.write_text(about.read_text().replace("elastictrainer.fleet.client_app:app", "poisoned:app"))
    run = page_commands()[1].replace("$(python -m elastictrainer.fleet)", str(home / "app"))
    printed, rows = run_small(home, run)
    assert [(row["trained"], row["refused"]) for row in rows[1:]] == [("2", "1")] * 2
    refused = re.findall(r"client (\d): refused: tensor \d+ has values that are not finite", printed)
    assert refused == ["1", "1"]
    assert float(rows[-1]["loss"]) < 10
