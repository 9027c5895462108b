"""The resident memory of this process: how much there is, its peak, and giving back what is free."""

import contextlib
import ctypes
import gc
import os
from pathlib import Path
from typing import Iterator, Optional

from elastictrainer.runs.environment import memory_bytes

_PROCESS = Path("/proc/self")
_LIBC = ctypes.CDLL("msvcrt" if os.name == "nt" else None)
_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # numbers of glibc's options, see man 3 mallopt
_LARGE = 2**20  # bytes: a block of so many goes back to the system as soon as it is free
_keeps_large_blocks = True  # whether malloc keeps such blocks


def resident_bytes() -> int:
    """Return the memory of this process that is in RAM now."""
    import psutil

    return int(psutil.Process().memory_info().rss)


def available_bytes() -> int:
    """Return the bytes that programs may still take of this machine or container without swapping."""
    import psutil

    return min(int(psutil.virtual_memory().available), max(0, memory_bytes() - resident_bytes()))


def reset_peak() -> bool:
    """Let `peak_bytes` count from here on; False where the system has no such thing."""
    try:
        (_PROCESS / "clear_refs").write_text("5")
    except OSError:
        return False
    return True


def peak_bytes() -> Optional[int]:
    """Return the largest resident memory since `reset_peak`, in bytes; None where nobody tells."""
    try:
        lines = (_PROCESS / "status").read_text().splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), None)


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


def release_large_blocks() -> None:
    """Let large blocks go back to the system as soon as they are free: this process has a memory limit.

    By default glibc keeps blocks of up to 32 MB for later, in pieces. Then, or if only blocks of more than
    4 MB went back, runs grow beyond what their steps take: one by a quarter in 41 epochs. It costs time, as
    the system clears each page that it hands out: a full step of MobileNetV2 on two images takes half as
    long again.
    """
    global _keeps_large_blocks
    _keeps_large_blocks = False
    _set_thresholds(_LARGE, _LARGE)


@contextlib.contextmanager
def releasing_large_blocks() -> Iterator[None]:
    """Let large blocks go back in this block, as with a limit: what is measured then needs what it takes."""
    _set_thresholds(_LARGE, _LARGE)
    try:
        yield
    finally:
        if _keeps_large_blocks:
            keep_large_blocks()


def keeps_large_blocks() -> bool:
    """Return whether memory is kept for later, as usual; a run within a limit does not."""
    return _keeps_large_blocks


def use_system_allocator() -> None:
    """Let TensorFlow take its tensors' memory from malloc; works only before the process' first op.

    On x86 with oneDNN it has a pool of its own for them, which never gives anything back.
    """
    os.environ.setdefault("TF_ONEDNN_USE_SYSTEM_ALLOCATOR", "1")


def keep_large_blocks() -> None:
    """Undo `release_large_blocks`: thresholds as glibc itself sets them after the first large blocks."""
    global _keeps_large_blocks
    _keeps_large_blocks = True
    _set_thresholds(32 * 2**20, 64 * 2**20)


def _set_thresholds(mmap: int, trim: int) -> None:
    if hasattr(_LIBC, "mallopt"):
        _LIBC.mallopt(_MMAP_THRESHOLD, mmap)
        _LIBC.mallopt(_TRIM_THRESHOLD, trim)
