"""Processes that train together wait for each other here, where Ctrl-C and a time limit end the waiting.

TensorFlow's own waiting can do neither, and ends the process where a name has no address.
"""

import contextlib
import socket
import time
from typing import Callable, Iterator, Sequence, Tuple

from elastictrainer.errors import RunError, UsageError
from elastictrainer.runs.log import LOG

_PATIENCE_S = 600.0  # the others may be on slower devices, or wait to be started by hand
_SILENT_S = 5.0  # those that are started together have come by then
_BETWEEN_S = 0.2


def wait_for_peers(workers: Sequence[str], rank: int, patience_s: float = _PATIENCE_S) -> None:
    """Return when every other worker has been reached once.

    This process answers at its own address until then, and TensorFlow's server does from then on.

    Args:
        workers: "host:port" of each, by rank.
        rank: of this process.
        patience_s: the longest wait.

    Raises:
        UsageError: an address is malformed, a name has none, or this process' own port is in use.
        RunError: a worker has not come in time.
    """
    places = [_place(worker, k) for k, worker in enumerate(workers)]
    missing = [k for k in range(len(workers)) if k != rank]
    began, told = time.monotonic(), False
    with _answering(places[rank][1]) as answer:
        while True:
            answer()
            missing = [k for k in missing if not _reached(places[k])]
            if not missing:
                return
            waited = time.monotonic() - began
            names = ", ".join(f"worker {k} at {workers[k]}" for k in missing)
            if waited > patience_s:
                raise RunError(
                    f"{names} did not come within {patience_s:.0f} s. Start each with the same cluster in "
                    "TF_CONFIG and an index of its own, and let its port through between the machines."
                )
            if waited > _SILENT_S and not told:
                LOG.info(f"waiting for {names} (Ctrl-C ends the waiting)")
                told = True
            time.sleep(_BETWEEN_S)


def _place(worker: str, rank: int) -> Tuple[str, int]:
    """Return host and port; UsageError where it has none or does not exist."""
    host, _, port = worker.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UsageError(f"TF_CONFIG: worker {rank} is {worker!r}; expected host:port.")
    host = host.strip("[]")  # of an IPv6 address
    try:
        socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"TF_CONFIG: worker {rank}'s host {host!r} has no address ({why}).") from None
    return host, int(port)


def _reached(place: Tuple[str, int]) -> bool:
    try:
        socket.create_connection(place, timeout=1.0).close()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _answering(port: int) -> Iterator[Callable[[], None]]:
    """Accept connections at `port`; the function given takes those that have come."""
    try:
        if socket.has_dualstack_ipv6():
            listener = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        else:
            listener = socket.create_server(("", port))
    except OSError as error:
        raise UsageError(
            f"TF_CONFIG: this worker's port {port} cannot be used ({error.strerror}). Choose another."
        ) from None
    with listener:
        listener.setblocking(False)

        def answer() -> None:
            with contextlib.suppress(BlockingIOError):
                while True:
                    listener.accept()[0].close()

        yield answer
