r"""The selector: what it reaches, what a whole selection costs, and how fast it solves.

    python scripts/benchmarks/selection.py quality --images path/to/images --weights path/to/mobilenet_v2.h5
    taskset -c 0 python scripts/benchmarks/selection.py cost mobilenetv2 --images path/to/images
    python scripts/benchmarks/selection.py speed

`quality`: the importance within the budget, against the exact optimum ("milp") and simpler rules, which have
the same budget by the cost groups; importances of real minibatches. Target: 99 % for each model and rho.

`cost`: a few selections one after the other, each on other minibatches, without the cache and with it, in
full steps. Times are of the processor: what else runs on the machine does not count. The first run of a
graph counts with what it takes beyond the median of the others. The pass that writes the cache is no part.

`speed`: random chains, processor time. Targets: 1,000 tensors at resolution 10^4 within 50 ms, 10,000 within
2 s; memory ("peak", of the solver alone) growing no faster than tensors x resolution bits.
"""

import contextlib
import itertools
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Callable, Dict

import numpy as np

import bench
from elastictrainer import Profile, select
from elastictrainer.selection.selector import solve_chain

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "helpers"))
from milp_oracle import milp  # the exact solver is a test's

_PARTS = ("scoring", "solving", "forward pass", "graphs", "first runs")
_RUNS = 12  # of each graph
_CHAINS = ((214, 10_000), (1_000, 1_000), (1_000, 10_000), (3_000, 10_000), (10_000, 10_000))  # resolutions
_REPEATS = 5
_RHOS = (0.4, 0.5, 0.6, 0.7, 0.8)


def first_that_fit(
    profile: Profile, importance: np.ndarray, order: np.ndarray, budget_ms: float
) -> np.ndarray:
    """Take the tensors in `order`, each if the step still fits the budget with it."""
    mask = np.zeros(len(profile), bool)
    for i in order:
        if importance[i] > 0 and profile.connected[i]:
            mask[i] = True
            if profile.step_time(mask) > budget_ms:
                mask[i] = False
    return mask


def by_density(profile: Profile, importance: np.ndarray, budget_ms: float) -> np.ndarray:
    """Again and again the tensor with the most importance for the time that it adds."""
    mask = np.zeros(len(profile), bool)
    left = set(np.flatnonzero((importance > 0) & profile.connected))
    now = profile.step_time(mask)
    while left:
        unpaid = profile.shared.rows(~profile.shared.active_groups(mask)).amount_per_tensor()
        cost = profile.t_dw + unpaid
        left = {i for i in left if now + cost[i] <= budget_ms}
        if not left:
            break
        best = max(left, key=lambda i: importance[i] / max(cost[i], 1e-9))
        mask[best] = True
        left.remove(best)
        now = profile.step_time(mask)
    return mask


RULES: Dict[str, Callable] = {
    "most important": lambda t, i, ms: first_that_fit(t, i, np.argsort(-i), ms),
    "importance per ms": by_density,
    "last layers": lambda t, i, ms: first_that_fit(t, i, t.order, ms),
}


def quality(options) -> None:
    columns = {"model": "<13", "rho": ">6g", "dp": ">9.4f", **dict.fromkeys(RULES, ">19.3f")}
    results = bench.Results(options, {**columns, "dp_ms": ">8.1f", "milp_ms": ">9.1f"})
    for name in options.models:
        made = bench.prepare(name, options)
        evaluator = made.evaluator()
        draws = [
            evaluator(itertools.islice(made.data.probe(k), options.importance_batches))
            for k in range(options.draws)
        ]
        for rho in (rho for rho in options.rho or _RHOS if rho >= made.profile.rho_min):
            reached, took = [], []
            for importance in draws:
                start = time.perf_counter()
                dp = select(made.profile, importance, rho)
                middle = time.perf_counter()
                best = select(made.profile, importance, rho, solver=milp).importance
                took.append([1e3 * (middle - start), 1e3 * (time.perf_counter() - middle)])
                budget_ms = rho * made.profile.full_ms
                masks = [rule(made.profile, importance, budget_ms) for rule in RULES.values()]
                reached.append(np.array([dp.importance, *(importance[mask].sum() for mask in masks)]) / best)
            worst = dict(zip(("dp", *RULES), np.min(reached, axis=0).tolist()))
            ms = dict(zip(("dp_ms", "milp_ms"), np.median(took, axis=0).tolist()))
            results.add({"model": name, "rho": rho, **worst, **ms})


def cost(options) -> None:
    columns = {"model": "<13", "cached": "<8", "number": ">6", **dict.fromkeys(_PARTS, ">14.1f")}
    results = bench.Results(options, {**columns, "all": ">8.1f"})
    for name, cached in itertools.product(options.models, (False, True)):
        measured = Selections(name, options, cached)
        for number in range(options.selections):
            seconds = measured.selection(options.rho[0] if options.rho else 0.25)
            steps = {part: s / measured.full_s for part, s in seconds.items()}
            about = {"model": name, "cached": str(cached), "number": number + 1, "full_s": measured.full_s}
            results.add({**about, **steps, "all": sum(steps.values())})


class Selections:
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
        self.full_s = float(np.median(times(lambda: float(full(*next(self._batches))), _RUNS)[1:]))
        self._evaluator = ImportanceEvaluator(
            made.objective, made.optimizer, steps=made.steps, momentum=False
        )
        self._forward = None

    def selection(self, rho):
        """Processor seconds of the parts of a selection; `rho` with the cache, without it twice as much."""
        seconds = dict.fromkeys(_PARTS, 0.0)
        batches = [next(self._batches) for _ in range(self._options.importance_batches)]
        with timed(seconds, "scoring"):
            importance = self._evaluator(batches)
        with timed(seconds, "solving"):
            rho *= 1 if self._cached else 2
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

        made, batch = self._made, self._minibatch
        if self._forward is None:
            with timed(seconds, "forward pass"):
                full = made.steps.full_if_compiled()
                self._forward = ForwardPass(made.objective, made.optimizer, batch, full)
        with timed(seconds, "graphs"):
            about = _RUNS * len(batch[0]), CacheSettings(), self._forward, self._profile
            cache = ActivationCache(made.steps.make(mask), batch, self._spec, *about)
        seconds["first runs"] += first(lambda: cache.write(batch))
        numbers = iter(range(_RUNS))
        seconds["first runs"] += first(lambda: float(cache.train(cache.read(0, next(numbers)))))
        cache.close()


@contextlib.contextmanager
def timed(seconds, part):
    """Add the processor seconds of a block to those of a part."""
    began = time.process_time()
    yield
    seconds[part] += time.process_time() - began


def times(run, count):
    """Processor seconds of each of a few runs."""
    found = dict.fromkeys(range(count), 0.0)
    for k in found:
        with timed(found, k):
            run()
    return list(found.values())


def first(run):
    """Processor seconds of the first run beyond the others' median."""
    found = times(run, _RUNS)
    return max(0.0, found[0] - float(np.median(found[1:])))


def speed(options) -> None:
    options.models = ["chain"]
    columns = {"model": "<12", "tensors": ">8", "resolution": ">12"}
    columns.update({"median_ms": ">11.1f", "worst_ms": ">10.1f", "peak_mb": ">9.1f"})
    results = bench.Results(options, columns)
    for tensors, resolution in _CHAINS:
        random = np.random.default_rng(0)
        t_dw, t_dy = random.exponential(1, (2, tensors))
        profile = Profile.from_chain([str(i) for i in range(tensors)], 0.3 * tensors, t_dw, t_dy)
        importances = [random.normal(0, 1, tensors) for _ in range(_REPEATS)]
        left = iter(importances)
        taken = times(lambda: select(profile, next(left), 0.5, resolution=resolution), _REPEATS)  # noqa: B023
        tracemalloc.start()
        solve_chain(t_dw[::-1], np.cumsum(t_dy[::-1]), importances[-1], 0.35 * tensors, resolution)
        peak_mb = tracemalloc.get_traced_memory()[1] / 1e6
        tracemalloc.stop()
        ms = {"median_ms": 1e3 * np.median(taken), "worst_ms": 1e3 * max(taken), "peak_mb": peak_mb}
        results.add({"model": "chain", "tensors": tensors, "resolution": resolution, **ms})


def main() -> None:
    what = {"quality": quality, "cost": cost, "speed": speed}
    parser = bench.parser(__doc__, "selection.json", what=list(what))
    parser.add_argument("--rho", type=float, nargs="+", help="default: 0.4 to 0.8; of `cost` 0.25")
    parser.add_argument("--draws", type=int, default=3, help="`quality`: importances, of other minibatches")
    parser.add_argument("--selections", type=int, default=3, help="`cost`: how many")
    parser.add_argument("--importance-batches", type=int, default=5)
    options = parser.parse_args()
    what[options.what](options)


if __name__ == "__main__":
    main()
