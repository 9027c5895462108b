"""The forecast of a run as it stands, and the scheme that its deadline leaves time for."""

from typing import Optional

import numpy as np
from numpy.typing import NDArray

from elastictrainer.profiler.timings import TensorTimings
from elastictrainer.runs.log import LOG
from elastictrainer.selection import schemes
from elastictrainer.selection.plan import Plan
from elastictrainer.selection.schemes import Scheme
from elastictrainer.training.forecast import Forecast, HeadWork, forecast
from elastictrainer.training.state import RunState


def expected_parts(
    state: RunState,
    timings: Optional[TensorTimings],
    plan: Plan,
    cached: bool,
    mask: Optional[NDArray[np.bool_]],
    scores: bool,
    head: Optional[HeadWork],
    seconds: Optional[float] = None,
) -> Optional[Forecast]:
    """Forecast a run as it stands; see `forecast` for the arguments.

    `seconds`: after which the last step is done; None: its deadline tells.
    """
    deadline = state.deadline
    ending_s = 0.0 if deadline is None else deadline.reserve_s()
    if seconds is None:
        assert deadline is not None
        seconds = deadline.for_training_s()
    return forecast(
        timings,
        plan,
        state.full_step_ms(),
        cached,
        mask,
        scores,
        head,
        seconds + ending_s,
        state.spent_s(),
        ending_s,
        deadline.check_s if deadline is not None and head is not None else 0.0,
    )


def affordable_scheme(
    state: RunState,
    scheme: Scheme,
    timings: Optional[TensorTimings],
    plan: Plan,
    cached: bool,
    head: Optional[HeadWork],
) -> Scheme:
    """Return the scheme that a deadline leaves time for: the one asked for, or one that prepares less.

    Without scores the last layers train, as many as the time allows; then the head alone, where it is solved.
    """
    if state.deadline is None or not scheme.selects:
        return scheme
    for other in (None, "freeze-below"):
        tried = scheme if other is None else schemes.create(other)
        expected = expected_parts(state, timings, plan, cached, None, tried.scores, head)
        if expected is None or expected.enough:
            if other:
                LOG.info("there is no time to score tensors: the last layers train")
            return tried
    assert expected is not None
    alone = schemes.create("traditional-tl")
    parts = expected_parts(state, timings, plan, cached, alone.mask(state.model), False, head)
    if head is None or parts is None or not parts.enough:
        return scheme
    LOG.info(
        "the time allows the head alone, which is solved on the features of the images. With --time "
        f"{1.1 * expected.least_s:.0f}s or more other layers train as well"
    )
    return alone
