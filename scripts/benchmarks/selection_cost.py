r"""What a selection costs, in full steps: scoring, solving, graphs, and the first runs of these.

    taskset -c 0 python scripts/benchmarks/selection_cost.py --images path/to/images \
        --weights path/to/mobilenet_v2.h5

A few selections are made one after the other, each on other minibatches, with the cache and without it. Times
are of the processor: what else runs on the machine does not count. The first run of a graph counts with what
it takes beyond the median of the others. The pass that writes the cache is no part of it.
"""

import contextlib
import time

import numpy as np

import bench
from elastictrainer import select

PARTS = ("scoring", "solving", "forward pass", "graphs", "first runs")
RUNS = 12  # of each graph


def main() -> None:
    parser = bench.parser(__doc__, "selection-cost.json", ["mobilenetv2"])
    parser.add_argument("--rho", type=float, default=0.25, help="with the cache; without it, twice as much")
    parser.add_argument("--selections", type=int, default=3)
    options = parser.parse_args()
    results = bench.Results(options)
    print(
        f"{'model':<13}{'cache':<7}{'number':>6}" + "".join(f"{part:>14}" for part in PARTS) + f"{'all':>8}"
    )
    for name in options.models:
        for cached in (False, True):
            measured = Measured(name, options, cached)
            for number in range(options.selections):
                seconds = measured.selection(number)
                steps = {part: s / measured.full_s for part, s in seconds.items()}
                about = {"model": name, "cached": cached, "number": number, "full_s": measured.full_s}
                results.add({**about, **seconds})
                print(
                    f"{name:<13}{'with' if cached else 'without':<7}{number + 1:>6}"
                    + "".join(f"{steps[part]:>14.1f}" for part in PARTS)
                    + f"{sum(steps.values()):>8.1f}",
                    flush=True,
                )


class Measured:
    """A model whose tensors are selected, as in a run."""

    def __init__(self, name, options, cached):
        import tensorflow as tf

        from elastictrainer.cache.costs import with_cache_costs
        from elastictrainer.selection.importance import ImportanceEvaluator

        made = self._made = bench.prepare(name, options)
        self._options, self._cached, self._batches = options, cached, made.minibatches()
        x, y = self._minibatch = next(self._batches)
        self._profile = made.profile
        if cached and self._profile.cache is None:
            self._profile = with_cache_costs(self._profile, made.objective, made.optimizer, (x, y))
        self._spec = tf.TensorSpec((None, *x.shape[1:]), x.dtype), tf.TensorSpec((None,), y.dtype)
        made.steps.clear()
        full = made.steps.get(np.ones(len(self._profile), bool))
        full.trace(*self._spec)
        self.full_s = float(np.median(times(lambda: float(full(*next(self._batches))))[1:]))
        self._evaluator = ImportanceEvaluator(
            made.objective, made.optimizer, steps=made.steps, momentum=False
        )
        self._forward = None

    def selection(self, number):
        """Processor seconds of the parts of a selection."""
        seconds = dict.fromkeys(PARTS, 0.0)
        batches = [next(self._batches) for _ in range(self._options.importance_batches)]
        with timed(seconds, "scoring"):
            importance = self._evaluator(batches)
        with timed(seconds, "solving"):
            rho = self._options.rho * (1 if self._cached else 2)
            mask = select(self._profile, importance, rho, cached=self._cached).mask
        (self._with_cache if self._cached else self._without)(mask, seconds)
        return seconds

    def _without(self, mask, seconds):
        with timed(seconds, "graphs"):
            step = self._made.steps.get(mask)
            step.trace(*self._spec)
        seconds["first runs"] += first(lambda: float(step(*next(self._batches))))

    def _with_cache(self, mask, seconds):
        from elastictrainer.cache.activation_cache import ActivationCache
        from elastictrainer.cache.forward_pass import ForwardPass
        from elastictrainer.cache.settings import CacheSettings

        made = self._made
        if self._forward is None:
            with timed(seconds, "forward pass"):
                self._forward = ForwardPass(
                    made.objective, made.optimizer, self._minibatch, made.steps.full_if_compiled()
                )
        with timed(seconds, "graphs"):
            cache = ActivationCache(
                made.steps.make(mask),
                self._minibatch,
                self._spec,
                RUNS * len(self._minibatch[0]),
                CacheSettings(),
                self._forward,
                self._profile,
            )
        seconds["first runs"] += first(lambda: cache.write(self._minibatch))
        numbers = iter(range(RUNS))
        seconds["first runs"] += first(lambda: float(cache.train(cache.read(0, next(numbers)))))
        cache.close()


@contextlib.contextmanager
def timed(seconds, part):
    """Add the processor seconds of a block to those of a part."""
    began = time.process_time()
    yield
    seconds[part] += time.process_time() - began


def times(run):
    """Processor seconds of each of a few runs."""
    found = []
    for _ in range(RUNS):
        began = time.process_time()
        run()
        found.append(time.process_time() - began)
    return found


def first(run):
    """Processor seconds of the first run beyond the others' median."""
    found = times(run)
    return max(0.0, found[0] - float(np.median(found[1:])))


if __name__ == "__main__":
    main()
