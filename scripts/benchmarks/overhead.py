"""What selecting costs at the paper's setting: interval 3 epochs of 1,500 steps.

    python scripts/benchmarks/overhead.py --images path/to/images --weights path/to/mobilenet_v2.h5

For each model, medians over five selections: importance, selection, the compilation of the selected step (its
first run less a later one; an old step is freed within it), and a profile renewed at run time. All over the
training time of the interval at rho 0.5. Target: importance, selection and compilation 1 %; renewing the
profile 1 %. "first" is the importance of one minibatch where its graph is not compiled yet, once in a run.
"""

import functools
import itertools
import time

import numpy as np

import bench
from elastictrainer import select

INTERVAL_STEPS = 3 * 1500


def measure(made: bench.Bench, batches: int, repeats: int, rho: float) -> dict:
    from elastictrainer.profiler.capture import Tracing
    from elastictrainer.profiler.charging import renewed
    from elastictrainer.selection.elastic import ElasticPolicy

    evaluator = made.evaluator()
    stream = made.minibatches()
    everything = made.timings.connected
    seconds = {"importance": [], "selection": [], "compilation": [], "profiling": []}
    steps = []

    def timed(name: str, work):
        start = time.perf_counter()
        result = work()
        seconds[name].append(time.perf_counter() - start)
        return result

    def train(mask) -> float:
        start = time.perf_counter()
        float(made.steps.get(mask)(*next(stream)))
        return time.perf_counter() - start

    start = time.perf_counter()
    evaluator(itertools.islice(made.data.probe(repeats), 1))  # its graph is compiled once in a run
    first_s = time.perf_counter() - start
    for k in range(repeats):
        minibatches = itertools.islice(made.data.probe(k), batches)
        importance = timed("importance", functools.partial(evaluator, minibatches))
        random = np.random.default_rng(k)
        importance = importance * random.uniform(0.5, 1.5, len(importance))  # another selection each time
        mask = timed("selection", functools.partial(select, made.timings, importance, rho)).mask
        first = train(mask)
        later = [train(mask) for _ in range(6)][1:]
        seconds["compilation"].append(first - float(np.median(later)))
        steps += later
        full_ms = 1e3 * float(np.median([train(everything) for _ in range(4)][1:]))

        start = time.perf_counter()
        tracing = Tracing()
        for _ in range(ElasticPolicy.TRACED):
            with tracing.step():
                train(everything)
        full = made.steps.get(everything)
        full.trace(*next(stream))
        renewed(made.timings, full, tracing.finish(), full_ms, 0)
        seconds["profiling"].append(time.perf_counter() - start - 1e-3 * ElasticPolicy.TRACED * full_ms)
    interval_s = INTERVAL_STEPS * float(np.median(steps))
    median = {name: float(np.median(values)) for name, values in seconds.items()}
    selecting = sum(median[name] for name in ("importance", "selection", "compilation"))
    return {
        "model": made.name,
        "step_ms": 1e3 * float(np.median(steps)),
        "interval_s": interval_s,
        "seconds": median,
        "first_importance_s": first_s,
        "all_seconds": seconds,
        "selecting_share": selecting / interval_s,
        "profiling_share": median["profiling"] / interval_s,
    }


def main() -> None:
    parser = bench.parser(__doc__, "overhead.json", ["resnet50", "mobilenetv2"])
    parser.add_argument("--rho", type=float, default=0.5)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    results = bench.Results(options)
    names = ("importance", "selection", "compilation", "profiling")
    print(
        f"{'model':<13}{'step ms':>9}{'interval':>10}{'first':>9}"
        + "".join(f"{name:>14}" for name in names)
        + f"{'selecting':>11}{'renewing':>10}"
    )
    for name in options.models:
        row = measure(bench.prepare(name, options), options.importance_batches, options.repeats, options.rho)
        results.add(row)
        print(
            f"{name:<13}{row['step_ms']:>9.1f}{row['interval_s']:>8.0f} s{row['first_importance_s']:>7.2f} s"
            + "".join(f"{row['seconds'][n]:>12.2f} s" for n in names)
            + f"{row['selecting_share']:>11.2%}{row['profiling_share']:>10.2%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
