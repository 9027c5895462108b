"""A network for the replicas of one machine alone: TensorFlow's server obeys whoever reaches it.

TensorFlow's server listens on all of a machine's addresses and asks for no password. In a network namespace
(Linux) of their own, replicas have a loopback and nothing else. This module imports nothing that starts a
thread: a process with several cannot enter another user's namespace.
"""

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
import subprocess
import sys
from typing import Any, Iterator, Optional, Tuple

_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000  # CLONE_NEWUSER and CLONE_NEWNET, <linux/sched.h>
_SET_INTERFACE_FLAGS, _UP_AND_RUNNING = 0x8914, 0x41  # SIOCSIFFLAGS, <linux/sockios.h>; <linux/if.h>
_READY = "ready"


@contextlib.contextmanager
def opened() -> Iterator[Tuple[Optional[int], str]]:
    """Make a network that lasts as long as this context and whoever is in it.

    Returns:
        Through the context: the process that keeps it, for `enter`, or None and why there is none.
    """
    code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import hold; hold()"
    keeper = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert keeper.stdout is not None and keeper.stdin is not None
    with keeper:
        try:
            said = keeper.stdout.readline().strip()
            yield (keeper.pid, "") if said == _READY else (None, said or "it cannot be made here")
        finally:
            keeper.stdin.close()


def hold() -> None:
    """Make the network in a process of its own, print whether that worked, keep it until stdin is closed."""
    try:
        _make()
    except (OSError, AttributeError) as error:  # AttributeError: another system than Linux
        print(getattr(error, "strerror", None) or "this system has no such thing", flush=True)
        return
    print(_READY, flush=True)
    sys.stdin.read()


def enter(keeper: Optional[int]) -> None:
    """Go into the network that process `keeper` keeps, with all that this process will start; None: stay.

    Raises:
        OSError: the process has threads, or the network is not this user's.
    """
    kinds = (("net", _NEW_NETWORK),) if os.geteuid() == 0 else (("user", _NEW_USER), ("net", _NEW_NETWORK))
    for name, kind in kinds if keeper is not None else ():
        with open(f"/proc/{keeper}/ns/{name}") as namespace:
            _call("setns", namespace.fileno(), kind)


def _make() -> None:
    if os.geteuid() == 0:  # a user namespace would hide the files of other users
        _call("unshare", _NEW_NETWORK)
    else:
        user, group = os.geteuid(), os.getegid()
        _call("unshare", _NEW_USER | _NEW_NETWORK)
        for file, content in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            with open(f"/proc/self/{file}", "w") as stream:
                stream.write(content)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh22x", b"lo", _UP_AND_RUNNING)
        fcntl.ioctl(any_socket, _SET_INTERFACE_FLAGS, request)


def _call(name: str, *arguments: Any) -> None:
    """Call a function of the C library; OSError where it fails, AttributeError where there is none."""
    function = getattr(ctypes.CDLL(None, use_errno=True), name)
    if function(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
