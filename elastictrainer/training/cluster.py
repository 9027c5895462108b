"""The processes that train together, as TF_CONFIG in the environment names them. No TensorFlow."""

import json
import os
import socket
from typing import List, NamedTuple

from elastictrainer.errors import UsageError

_FORMAT = '{"cluster": {"worker": ["host:port", "host:port"]}, "task": {"type": "worker", "index": 0}}'


class Cluster(NamedTuple):
    """This process' rank, from 0, and the addresses of all workers, "host:port" by rank."""

    rank: int
    addresses: List[str]


def read_cluster() -> Cluster:
    """Read TF_CONFIG; UsageError where it is missing or wrong."""
    text = os.environ.get("TF_CONFIG", "")
    try:
        config = json.loads(text)
        workers, rank = list(map(str, config["cluster"]["worker"])), int(config["task"]["index"])
    except (ValueError, KeyError, TypeError):
        raise UsageError(
            f"--strategy multi-worker needs TF_CONFIG in the environment, like {_FORMAT}; it is {text!r}."
        ) from None
    if set(config["cluster"]) != {"worker"}:
        raise UsageError(f"TF_CONFIG must name workers only, like {_FORMAT}.")
    if not 0 <= rank < len(workers):
        raise UsageError(
            f"TF_CONFIG names {len(workers)} workers, with the indices 0 to {len(workers) - 1}; that of this "
            f"process is {rank}. Expected: {_FORMAT}."
        )
    return Cluster(rank, workers)


def require_addresses(cluster: Cluster) -> None:
    """Raise UsageError where an address is malformed, or unknown: TensorFlow would abort."""
    for number, worker in enumerate(cluster.addresses):
        host, _, port = worker.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise UsageError(f"TF_CONFIG: worker {number} is {worker!r}; expected host:port.")
        try:
            socket.getaddrinfo(host.strip("[]"), int(port))  # brackets: of an IPv6 address
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise UsageError(f"TF_CONFIG: worker {number}'s host {host!r} has no address ({why}).") from None
