"""The environment of this program: versions, device, threads, memory; and TensorFlow, loaded silently."""

import contextlib
import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any, Dict, Iterator, Optional

import psutil

CPUINFO = Path("/proc/cpuinfo")
PACKAGES = ("elastictrainer", "tensorflow", "keras", "tensorflow-addons", "vit-keras", "numpy", "scipy")


def versions() -> Dict[str, Optional[str]]:
    """Return versions of Python and of the packages that decide results; None where one is not installed."""
    installed: Dict[str, Optional[str]] = {"python": platform.python_version(), **dict.fromkeys(PACKAGES)}
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            installed[package] = metadata.version(package)
    return installed


def device() -> str:
    """Return the name of the GPU that TensorFlow sees, else of the processor, and if oneDNN was asked for."""
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        return str(tf.config.experimental.get_device_details(gpus[0]).get("device_name", "GPU"))
    fields = _processor()
    name = fields.get("model name") or fields.get("Model") or fields.get("Hardware")
    kernels = {"0": ", no oneDNN", "1": ", oneDNN"}.get(os.environ.get("TF_ENABLE_ONEDNN_OPTS", ""), "")
    return f"{name or platform.processor() or 'CPU'} ({platform.machine()}{kernels})"


def _processor() -> Dict[str, str]:
    """Return what Linux says of the processor; empty elsewhere."""
    lines = CPUINFO.read_text().splitlines() if CPUINFO.exists() else []
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}


def has_bfloat16() -> bool:
    """Return whether the GPU that TensorFlow sees, else the processor, says that it computes in bfloat16."""
    load_tensorflow()
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        found = tf.config.experimental.get_device_details(gpus[0]).get("compute_capability", (0, 0))
        return bool(found >= (8, 0))
    fields = _processor()
    flags = f"{fields.get('flags', '')} {fields.get('Features', '')}".split()  # x86, Arm
    return not {"avx512_bf16", "amx_bf16", "bf16"}.isdisjoint(flags)


def processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads() -> Dict[str, int]:
    """Return processors this process may use, and TensorFlow's thread counts (0: TensorFlow's own choice)."""
    import tensorflow as tf

    def asked(pool: str) -> int:
        value = os.environ.get(f"TF_NUM_{pool}_THREADS", "")
        return int(value) if value.isdecimal() else 0  # as TensorFlow takes it

    return {
        "processors": processors(),
        "inter_op": tf.config.threading.get_inter_op_parallelism_threads() or asked("INTEROP"),
        "intra_op": tf.config.threading.get_intra_op_parallelism_threads() or asked("INTRAOP"),
    }


def describe() -> Dict[str, Any]:
    """Describe all of the above, for `environment.json` and a profile's metadata."""
    return {
        "versions": versions(),
        "device": device(),
        "threads": threads(),
        "platform": platform.platform(),
    }


def memory_bytes() -> int:
    """Return the memory that this process may use: the machine's or a container's."""
    limits = [int(psutil.virtual_memory().total)]
    for name in ("memory.max", "memory/memory.limit_in_bytes"):  # of version 2 and 1 of control groups
        with contextlib.suppress(OSError, ValueError):  # ValueError: "max"
            limits.append(int(Path("/sys/fs/cgroup", name).read_text()))
    return min(limits)


def peak_rss_bytes() -> int:
    """Return the largest resident memory of this process so far."""
    try:
        import resource
    except ImportError:  # Windows, where psutil knows it
        memory = psutil.Process().memory_info()
        return int(getattr(memory, "peak_wset", memory.rss))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def peak_gpu_bytes() -> Optional[int]:
    """Return the most that TensorFlow's allocator has held on the first GPU; None without one."""
    import tensorflow as tf

    if not tf.config.list_physical_devices("GPU"):
        return None
    return int(tf.config.experimental.get_memory_info("GPU:0")["peak"])


def load_tensorflow() -> None:
    """Import TensorFlow while the process's stderr (file descriptor 2) goes to the null device.

    No setting of TensorFlow's silences the lines that its C++ libraries write. With --debug on the command
    line nothing is done: the later import then shows them.
    """
    if "tensorflow" in sys.modules or "--debug" in sys.argv:
        return
    with silenced():
        import tensorflow  # noqa: F401  # imported for its effect


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Send the process's stderr (file descriptor 2) to the null device in this block, but with --debug."""
    if "--debug" in sys.argv:
        yield
        return
    sys.stderr.flush()
    stderr, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(null)
