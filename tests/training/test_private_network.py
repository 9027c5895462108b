"""A network of one's own: who is in it reaches each other, and nobody else."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from elastictrainer.training import private_network

LISTEN = """
import socket, sys
from elastictrainer.training import private_network
private_network.enter({keeper})
server = socket.create_server(("0.0.0.0", {port}))
print("listening", flush=True)
server.accept()[0].sendall(b"hello")
"""
CONNECT = """
import socket
from elastictrainer.training import private_network
private_network.enter({keeper})
print(socket.create_connection(("127.0.0.1", {port}), timeout=20).recv(5).decode())
"""


def process(code):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)


def free_port():
    with socket.create_server(("", 0)) as server:
        return server.getsockname()[1]


def test_a_server_in_it_is_reached_from_within_and_not_from_outside():
    with private_network.opened() as (keeper, why_not):
        if keeper is None:
            pytest.skip(f"no network namespaces here: {why_not}")
        port = free_port()
        with process(LISTEN.format(keeper=keeper, port=port)) as server:
            try:
                assert server.stdout.readline() == "listening\n"
                with pytest.raises(OSError):
                    socket.create_connection(("127.0.0.1", port), timeout=5)
                with process(CONNECT.format(keeper=keeper, port=port)) as client:
                    assert client.communicate(timeout=60)[0] == "hello\n"
            finally:
                server.kill()
    with pytest.raises(ProcessLookupError):
        os.kill(keeper, 0)


def test_where_there_is_none_it_is_said_why(monkeypatch, capfd):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with private_network.opened() as opened:
        assert opened == (None, "it cannot be made here")


def test_the_reason_of_the_system_is_passed_on(capsys, monkeypatch):
    def forbidden(name, *arguments):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(private_network, "_call", forbidden)
    private_network.hold()
    assert capsys.readouterr().out == "Operation not permitted\n"


def test_who_is_to_stay_stays():
    before = os.readlink("/proc/self/ns/net") if Path("/proc/self/ns/net").exists() else None
    private_network.enter(None)
    assert before is None or os.readlink("/proc/self/ns/net") == before
