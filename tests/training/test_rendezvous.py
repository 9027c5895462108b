"""Workers that wait for each other, over real sockets."""

import os
import signal
import socket
import threading
import time

import pytest

from elastictrainer import RunError, UsageError
from elastictrainer.training.rendezvous import wait_for_peers
from log_lines import listen


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def addresses(count):
    return [f"localhost:{port}" for port in free_ports(count)]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_all_go_on_once_all_have_come(count):
    workers, done, said = addresses(count), [], listen()

    def wait(rank):
        time.sleep(0.1 * rank)
        wait_for_peers(workers, rank)
        done.append(rank)
        # What TensorFlow does next: it answers at the same port.
        with socket.create_server(("", int(workers[rank].split(":")[1]))):
            gone.wait(20)

    gone = threading.Event()
    threads = [threading.Thread(target=wait, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 20
    while len(done) < count and time.monotonic() < until:
        time.sleep(0.05)
    gone.set()
    for thread in threads:
        thread.join()
    assert sorted(done) == list(range(count)) and not said


def test_who_is_missing_is_said_and_after_a_while_it_is_an_error(monkeypatch):
    monkeypatch.setattr("elastictrainer.training.rendezvous._SILENT_S", 0.1)
    workers, said = addresses(3), listen()
    with socket.create_server(("", int(workers[1].split(":")[1]))):
        with pytest.raises(RunError, match=f"worker 2 at {workers[2]} .*1 s.*TF_CONFIG"):
            wait_for_peers(workers, 0, patience_s=1.0)
    assert said == [f"waiting for worker 2 at {workers[2]} (Ctrl-C ends the waiting)"]


def test_waiting_can_be_interrupted():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            wait_for_peers(addresses(2), 0)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    "worker, said",
    [
        ("nowhere", "worker 1 .*'nowhere'.* host:port"),
        ("host:http", "expected host:port"),
        ("host:70000", "expected host:port"),
        ("no-such-host.invalid:2000", "'no-such-host.invalid'"),
        ("a" * 70 + ".b:2000", "has no address"),
    ],
)
def test_an_address_that_is_none_is_named_at_once(worker, said):
    with pytest.raises(UsageError, match=said):
        wait_for_peers([*addresses(1), worker], 0)


def test_a_port_in_use_is_named():
    with socket.create_server(("", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {port} "):
            wait_for_peers([f"localhost:{port}", *addresses(1)], 0)
