"""The resident memory of this process: how much there is, and giving back what is free."""

import ctypes
import gc
import os
import sys
from typing import Any

import psutil

from elastictrainer.runs.environment import memory_bytes

_LIBC: Any = ctypes.CDLL(None) if sys.platform == "linux" else None
_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # numbers of glibc's options, see man 3 mallopt
_LARGE = 2**20  # bytes: a block of so many goes back to the system as soon as it is free


def resident_bytes() -> int:
    return int(psutil.Process().memory_info().rss)


def available_bytes() -> int:
    """Return the bytes that programs may still take of this machine or container without swapping."""
    return min(int(psutil.virtual_memory().available), max(0, memory_bytes() - resident_bytes()))


def settled_bytes() -> int:
    """Return the memory of this process that is in RAM once what is free was given back."""
    release_memory()
    return resident_bytes()


def release_memory() -> None:
    """Free unreferenced objects, and give the memory that malloc keeps for later to the system."""
    gc.collect()
    if hasattr(_LIBC, "malloc_trim"):  # glibc's alone
        _LIBC.malloc_trim(0)


def exempt_from_collection() -> None:
    """Exempt all present objects from garbage collection, so that a new selection waits less for it.

    For a process that only trains: those of these objects that refer to each other are never freed.
    """
    gc.collect()
    gc.freeze()


def give_back_freed_memory() -> None:
    """Let freed memory go back to the system at once, for the rest of this process: it has a memory limit.

    By default glibc keeps blocks of up to 32 MB for later, in pieces. Then, or if only blocks of more than
    4 MB went back, runs grow beyond what their steps take: one by a quarter in 41 epochs. It costs time, as
    the system clears each page that it hands out: a full step of MobileNetV2 on two images takes half as
    long again. On x86 with oneDNN TensorFlow has a pool of its own for tensors, which never gives anything
    back; it is left out only where this is called before the process' first op.
    """
    os.environ.setdefault("TF_ONEDNN_USE_SYSTEM_ALLOCATOR", "1")
    if hasattr(_LIBC, "mallopt"):
        _LIBC.mallopt(_MMAP_THRESHOLD, _LARGE)
        _LIBC.mallopt(_TRIM_THRESHOLD, _LARGE)
