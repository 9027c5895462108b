"""docs/fleet.md: its first commands, on small data, with Flower's simulation engine."""

import csv
import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from PIL import Image

PAGE = Path(__file__).resolve().parents[2] / "docs" / "fleet.md"
SMALL = "model='demo' image-size=24 batch-size=4 rounds=2"
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


@pytest.mark.slow
def test_the_page_trains_a_fleet_with_one_command(home):
    pytest.importorskip("flwr", reason='Flower is not installed: pip install "elastictrainer[flower]"')
    block = re.search(r"^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL).group(1)
    install, run = block.replace("\\\n", "").splitlines()
    assert install == 'pip install "elastictrainer[flower]"'
    assert [word for word in shlex.split(run) if "rounds=" in word]
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
    assert {row["trained"] for row in rows[1:]} == {"3"} and float(rows[0]["accuracy"]) > 0.6
    assert (home / "fleet" / "model.keras").exists()
