"""Step times measured during a run, without a trace in its state."""

import itertools
import time
from typing import Any, Iterable, List

from elastictrainer.steps import optimizers
from elastictrainer.steps.compiled_step import CompiledStep
from elastictrainer.steps.snapshot import preserve_variables

_STEPS = 6  # the noise of their mean is less than half of a step's
_WARM_UP = 2  # the first run builds the graph, the second one still allocates


def time_steps(
    step: CompiledStep, minibatches: Iterable[Any], count: int = _STEPS, warm_up: int = _WARM_UP
) -> List[float]:
    """Measure the milliseconds of `count` runs of `step` on `minibatches`, which repeat if they are few.

    The first `warm_up` runs, one at least, find cold caches and are not timed. Fetching a minibatch is
    included. Every variable is afterwards as it was.
    """
    repeated = itertools.cycle(itertools.islice(minibatches, 1 + warm_up + count))  # one to trace
    step.trace(*next(repeated))
    times = []
    with preserve_variables([*step.state(), *optimizers.variables_of(step.optimizer)]):
        for k in range(warm_up + count):
            start = time.perf_counter()
            float(step(*next(repeated)))
            if k >= warm_up:
                times.append(1e3 * (time.perf_counter() - start))
    return times
