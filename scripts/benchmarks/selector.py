"""Processor time and memory of the selector on random chains, against its targets.

    python scripts/benchmarks/selector.py --output selector.json

Targets: 1,000 tensors at resolution 10^4 within 50 ms, 10,000 within 2 s; memory growing no faster than
tensors x resolution bits. "peak" is the most that the solver alone allocates, by tracemalloc, in a separate
run. Then time and memory as two budgets: 214 tensors within 100 ms.
"""

import argparse
import statistics
import time
import tracemalloc

import numpy as np

from elastictrainer import Profile, select
from elastictrainer.profiler.cost_groups import CostGroups
from elastictrainer.profiler.memory import StepMemory
from elastictrainer.runs.files import write_json
from elastictrainer.selection.selector import solve_chain

# Tensors, resolution, target in seconds; 214 tensors are ResNet50's.
CASES = (
    (214, 10_000, None),
    (1_000, 1_000, None),
    (1_000, 10_000, 0.050),
    (3_000, 10_000, None),
    (10_000, 10_000, 2.0),
)


def measure(tensors: int, resolution: int, repeats: int) -> dict:
    random = np.random.default_rng(0)
    t_dw, t_dy = random.exponential(1, (2, tensors))
    seconds = []
    for _ in range(repeats):
        profile = Profile.from_chain([str(i) for i in range(tensors)], 0.3 * tensors, t_dw, t_dy)
        importance = random.normal(0, 1, tensors)
        start = time.process_time()
        select(profile, importance, 0.5, resolution=resolution)
        seconds.append(time.process_time() - start)
    tracemalloc.start()
    solve_chain(t_dw[::-1], np.cumsum(t_dy[::-1]), importance, 0.35 * tensors, resolution)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {"seconds": statistics.median(seconds), "worst_seconds": max(seconds), "peak_bytes": peak}


def measure_two_budgets(tensors: int, repeats: int) -> dict:
    """Time and memory: random chains, each tensor holding something alone and with all deeper ones."""
    random = np.random.default_rng(0)
    seconds = []
    for _ in range(repeats):
        times = random.random((2, tensors))
        profile = Profile.from_chain([str(i) for i in range(tensors)], 0.3 * tensors, *times)
        held = CostGroups.singletons(random.lognormal(0, 1, tensors))
        held = held.joined(CostGroups.prefixes(random.lognormal(0, 1, tensors)))
        nothing = CostGroups.singletons(np.zeros(tensors))
        profile.memory = StepMemory(held, nothing, 0, 0, 0, 4, nothing)
        limit = random.uniform(0.3, 0.7) * held.amount.sum()
        importance = random.lognormal(0, 2, tensors)
        start = time.process_time()
        select(profile, importance, random.uniform(0.4, 0.8), memory=limit)
        seconds.append(time.process_time() - start)
    return {"seconds": statistics.median(seconds), "worst_seconds": max(seconds)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", help="JSON file to write")
    arguments = parser.parse_args()
    print(
        f"{'tensors':>8}{'resolution':>12}{'median':>11}{'worst':>11}{'target':>10}{'peak':>11}"
        f"{'tensors x resolution bits':>28}"
    )
    rows = []
    for tensors, resolution, target in CASES:
        row = measure(tensors, resolution, arguments.repeats)
        bits = tensors * resolution / 8
        print(
            f"{tensors:>8}{resolution:>12}"
            f"{1e3 * row['seconds']:>8.1f} ms{1e3 * row['worst_seconds']:>8.1f} ms"
            f"{'' if target is None else f'{1e3 * target:.0f} ms':>10}"
            f"{row['peak_bytes'] / 1e6:>8.1f} MB{bits / 1e6:>25.1f} MB"
        )
        rows.append({"tensors": tensors, "resolution": resolution, "target_seconds": target, **row})
    for tensors in (28, 158, 214, 400):
        row = measure_two_budgets(tensors, arguments.repeats)
        print(
            f"{tensors:>8} {'two budgets':>11}{1e3 * row['seconds']:>8.1f} ms"
            f"{1e3 * row['worst_seconds']:>8.1f} ms"
        )
        rows.append({"tensors": tensors, "budgets": 2, **row})
    if arguments.output:
        write_json(arguments.output, rows)


if __name__ == "__main__":
    main()
