"""The kinds of work that is timed, and the time of a step by the clock: after a warm-up, or in a run."""

import itertools
import time
from typing import Any, Callable, Iterable, List

import numpy as np

from elastictrainer.steps import optimizers
from elastictrainer.steps.compiled_step import CompiledStep
from elastictrainer.steps.objective import Minibatch
from elastictrainer.steps.snapshot import preserve_variables

FULL = "full"  # a step that trains every tensor,
PLAIN = "plain"  # a step of a selection, from images to update,
CACHE_WRITE = "cache_write"  # not a step: a pass over the images that writes the cache,
CACHE_READ = "cache_read"  # and a cached step, which begins by reading it

SETTLED = 100  # runs after which a compiled step is as fast as it becomes; `warm_up` says why
_LEAST_RUNS = 3  # of a warm-up, however long a step takes: the first builds the graph and fills caches
_MOST_S = 2.0  # of a warm-up: a step that runs less than a hundred times in it has few short ops to settle
_TIMED_RUNS = 6  # steps timed within a run: the noise of their mean is less than half of a step's
_FIRST_RUNS = 2  # before them: the first run builds the graph, the second one still allocates


def elapsed_ms(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return 1e3 * (time.perf_counter() - start)


def step_ms(step: Any, batch: Minibatch, count: int) -> np.ndarray:
    """Measure (count,) wall-clock ms of consecutive steps on `batch`."""
    return np.array([elapsed_ms(lambda: float(step(*batch))) for _ in range(count)])


def warm_up(
    step: Any, batch: Minibatch, runs: int = SETTLED, clock: Callable[[], float] = time.perf_counter
) -> int:
    """Run `step` until it has run `runs` times: for two seconds at most, but three times at least.

    TensorFlow's executor first estimates every op as a long one, and hands it to another thread. The estimate
    falls by a tenth with every run. After about ninety runs short ops stay on their thread, and steps of many
    small ops are faster. A training run soon gets there; a measurement has to wait for it. Returns how many
    steps were made.
    """
    start, made = clock(), 0
    while step.runs < runs and (made < _LEAST_RUNS or clock() - start < _MOST_S):
        float(step(*batch))
        made += 1
    return made


def time_steps(step: CompiledStep, minibatches: Iterable[Minibatch]) -> List[float]:
    """Measure the milliseconds of six runs of `step` on `minibatches`, which repeat if they are few.

    The two runs before find cold caches and are not timed. Fetching a minibatch is included. Every variable
    is afterwards as it was.
    """
    runs = _FIRST_RUNS + _TIMED_RUNS
    repeated = itertools.cycle(itertools.islice(minibatches, 1 + runs))  # one to trace
    step.trace(*next(repeated))
    with preserve_variables([*step.state(), *optimizers.variables_of(step.optimizer)]):
        times = [elapsed_ms(lambda: float(step(*next(repeated)))) for _ in range(runs)]
    return times[_FIRST_RUNS:]
