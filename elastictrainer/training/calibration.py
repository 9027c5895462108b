"""Step times measured beside a run, which leave no trace in it."""

import itertools
import time
from typing import Any, Iterable, List

from elastictrainer.steps import optimizers
from elastictrainer.steps.compiled_step import CompiledStep
from elastictrainer.steps.snapshot import restored

_STEPS = 12  # the noise of their mean is a third of a step's
_WARM_UP = 2  # the first run builds the graph, the second one still allocates


def time_steps(step: CompiledStep, minibatches: Iterable[Any]) -> List[float]:
    """Milliseconds that `step` takes on some of `minibatches`, which begin anew if they are few.

    Fetching a minibatch is included. Every variable is afterwards as it was.
    """
    repeated = itertools.cycle(itertools.islice(minibatches, _WARM_UP + _STEPS))
    step.trace(*next(repeated))
    times = []
    with restored([*step.state(), *optimizers.variables_of(step.optimizer)]):
        for k in range(_WARM_UP + _STEPS):
            start = time.perf_counter()
            float(step(*next(repeated)))
            if k >= _WARM_UP:
                times.append(1e3 * (time.perf_counter() - start))
    return times
