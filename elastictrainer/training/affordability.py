"""The scheme that a run by the clock has time for."""

from elastictrainer.runs.log import LOG
from elastictrainer.selection import schemes
from elastictrainer.selection.schemes import Scheme
from elastictrainer.training.forecast import GRAPH_STEPS, RunShape, forecast
from elastictrainer.training.state import RunState

# Seconds of full training: of a shorter one nobody waits for a share.
_WORTH_S = 30.0


def affordable_scheme(state: RunState, scheme: Scheme, shape: RunShape) -> Scheme:
    """Return the scheme that a run by the clock has time for: the one asked for, or one that prepares less.

    Without scores the last layers train, as many as the time allows; then the head alone, where it is solved.
    A share of full training's time that is too little for the head alone gives the head all the same.
    """
    if not scheme.selects or (state.deadline is None and shape.head is None):
        return scheme
    seconds = None
    if state.deadline is None:
        # The full step is built and timed first; in full training it is built as well.
        step_s = 1e-3 * shape.profile.full_ms
        built_s = GRAPH_STEPS * step_s
        full_s = state.epochs * state.steps_per_epoch * step_s + built_s
        if full_s < _WORTH_S:
            return scheme
        seconds = (state.rho or 1.0) * full_s - built_s
    for other in (None, "freeze-below"):
        tried = scheme if other is None else schemes.create(other)
        expected = forecast(shape, state, selects=True, scores=tried.needs_scores, seconds=seconds)
        if expected.enough:
            if other:
                LOG.info("there is no time to score tensors: the last layers train")
            return tried
    alone = forecast(shape, state, selects=False, scores=False, seconds=seconds)
    if shape.head is None or not (alone.enough or state.deadline is None):
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
    return schemes.create("head-alone")
