"""The forecast of a run as it stands, and the scheme that its deadline leaves time for."""

from typing import Optional

import numpy as np
from numpy.typing import NDArray

from elastictrainer.profiler.profile import Profile
from elastictrainer.runs.log import LOG
from elastictrainer.selection import schemes
from elastictrainer.selection.plan import Plan
from elastictrainer.selection.schemes import Scheme
from elastictrainer.training.forecast import GRAPH_STEPS, Forecast, HeadWork, forecast
from elastictrainer.training.state import RunState

# Seconds of full training: of a shorter one nobody waits for a share.
_WORTH_S = 30.0


def expected_parts(
    state: RunState,
    profile: Optional[Profile],
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
        profile,
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
    profile: Optional[Profile],
    plan: Plan,
    cached: bool,
    head: Optional[HeadWork],
) -> Scheme:
    """Return the scheme that a run by the clock has time for: the one asked for, or one that prepares less.

    Without scores the last layers train, as many as the time allows; then the head alone, where it is solved.
    A share of full training's time that is too little for the head alone gives the head all the same.
    """
    if not scheme.selects or (state.deadline is None and head is None):
        return scheme
    seconds = None
    if state.deadline is None and profile is not None:
        # The full step is built and timed first; in full training it is built as well.
        step_s = 1e-3 * profile.full_ms
        built_s = GRAPH_STEPS * step_s
        full_s = state.epochs * state.steps_per_epoch * step_s + built_s
        if full_s < _WORTH_S:
            return scheme
        seconds = (state.rho or 1.0) * full_s - built_s
    for other in (None, "freeze-below"):
        tried = scheme if other is None else schemes.create(other)
        scores = tried.scores
        expected = expected_parts(state, profile, plan, cached, None, scores, head, seconds)
        if expected is None or expected.enough:
            if other:
                LOG.info("there is no time to score tensors: the last layers train")
            return tried
    assert expected is not None
    alone = schemes.create("traditional-tl")
    parts = expected_parts(state, profile, plan, cached, alone.mask(state.model), False, head, seconds)
    if head is None or parts is None or not (parts.enough or state.deadline is None):
        return scheme
    if seconds is None:
        more = f"With --time {1.1 * expected.least_s:.0f}s or more"
    else:
        rho = 1.1 * (expected.least_s + built_s) / full_s
        more = f"With rho {rho:.2f} or more" if rho <= 1 else "With more epochs"
    LOG.info(
        "the time allows the head alone, which is solved on the features of the images. "
        f"{more} other layers train as well"
    )
    return alone
