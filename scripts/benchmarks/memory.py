"""Memory of the elastic step against full training's, and of a process over 100 selections.

    python scripts/benchmarks/memory.py --images path/to/images --weights path/to/mobilenet_v2.h5

Each row is measured in a new process: peak resident memory of ten training steps above that of the process
with model and optimizer built. Then one process makes 100 selections (importance, selection, compilation,
three steps each): resident memory after the last is to be within 2 % of that after the tenth. "allocated" is
what malloc has handed out and not got back, with the pools of TensorFlow's allocators and without Python's;
null where glibc is older than 2.33.
"""

import ctypes
import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Optional

import numpy as np
import psutil

import bench
from elastictrainer import select
from elastictrainer.runs import environment
from elastictrainer.runs.files import write_json


def peak(options, name: str, rho: float) -> dict:
    """Bytes of this process before any step, and at the peak of the steps at `rho` (1: full)."""
    made = bench.prepare(name, options, warm=0)
    mask = made.profile.connected
    if rho < 1:
        # Which tensors are selected matters less than how deep they are: random importances will do.
        importance = np.random.default_rng(0).lognormal(0, 2, len(made.profile))
        mask = select(made.profile, importance, rho).mask
    before = psutil.Process().memory_info().rss
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here on
    batches = made.minibatches()
    for _ in range(10):
        float(made.steps.get(mask)(*next(batches)))
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        "rho": rho,
        "before": before,
        "peak": 1024 * int(status["VmHWM"].split()[0]),
        "tensors": int(mask.sum()),
    }


class Mallinfo(ctypes.Structure):
    """glibc's struct mallinfo2, in bytes (see man 3 mallinfo)."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    ]


def allocated() -> Optional[int]:
    """Bytes that malloc has handed out, from its heaps and by mmap; None where it does not tell."""
    mallinfo2 = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo2 is None:
        return None
    mallinfo2.restype = Mallinfo
    state = mallinfo2()
    return state.uordblks + state.hblkhd


def hundred(options, name: str, count: int) -> list:
    """(resident, allocated) bytes after each of `count` selections in this process."""
    made = bench.prepare(name, options, warm=2)
    evaluator = made.evaluator()
    batches = made.minibatches()
    sizes = []
    for k in range(count):
        importance = evaluator(itertools.islice(made.data.probe(k), 1))
        importance = np.abs(importance) * np.random.default_rng(k).lognormal(0, 1, len(importance))
        mask = select(made.profile, importance, 0.5).mask
        for step in (made.profile.connected, mask, mask, mask):
            float(made.steps.get(step)(*next(batches)))
        sizes.append((psutil.Process().memory_info().rss, allocated()))
    return sizes


def main() -> None:
    parser = bench.parser(__doc__, "memory.json", ["mobilenetv2", "resnet50"])
    parser.add_argument("--rho", type=float, nargs="+", default=[0.4, 0.5, 0.6, 0.7, 0.8])
    parser.add_argument("--selections", type=int, default=100)
    parser.add_argument("--long", default="mobilenetv2", help="model of the 100 selections; empty: none")
    parser.add_argument("--here", choices=("peak", "hundred"), help="measure in this process")
    options = parser.parse_args()
    if options.here:
        result = (
            peak(options, options.models[0], options.rho[0])
            if options.here == "peak"
            else hundred(options, options.models[0], options.selections)
        )
        write_json(options.output, {"result": result})
        return

    def elsewhere(name: str, *extra: str):
        file = Path(options.output).with_suffix(".part")
        shared = [
            "--images",
            options.images,
            "--weights",
            options.weights,
            "--profiles",
            options.profiles,
            "--output",
            str(file),
        ]
        subprocess.run([sys.executable, __file__, name, *shared, *extra], check=True)
        result = json.loads(file.read_text())["result"]
        file.unlink()
        return result

    rows = []
    print(f"{'model':<13}{'rho':>6}{'tensors':>9}{'before MB':>11}{'peak MB':>9}{'of full steps above':>21}")
    for name in options.models:
        bench.prepare(name, options, warm=0)  # the profile, if there is none
        full_above = None  # bytes of the full step, the first row
        for rho in (1.0, *options.rho):
            row = {"model": name, **elsewhere(name, "--here", "peak", "--rho", str(rho))}
            above = row["peak"] - row["before"]
            full_above = full_above or above
            rows.append({**row, "above": above, "of_full": above / full_above})
            print(
                f"{name:<13}{rho:>6g}{row['tensors']:>9}{row['before'] / 1e6:>11.0f}"
                f"{row['peak'] / 1e6:>9.0f}{above / full_above:>21.3f}",
                flush=True,
            )
    result = {"rows": rows, "options": vars(options), **environment.describe()}
    if options.long:
        resident, taken = zip(
            *elsewhere(options.long, "--here", "hundred", "--selections", str(options.selections))
        )
        result["resident"], result["allocated"] = resident, taken
        result["growth"] = resident[-1] / resident[9] - 1
        malloc = (
            "" if taken[-1] is None else f"; allocated {taken[9] / 1e6:.1f} MB and {taken[-1] / 1e6:.1f} MB"
        )
        print(
            f"{options.long}: {resident[9] / 1e6:.0f} MB after 10 selections, "
            f"{resident[-1] / 1e6:.0f} MB after {len(resident)}: {result['growth']:+.1%}, "
            f"at most {max(resident[9:]) / resident[9] - 1:+.1%} on the way{malloc}"
        )
    write_json(options.output, result)


if __name__ == "__main__":
    main()
