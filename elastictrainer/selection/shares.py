"""How a run's time is spread over its intervals: where it is short, more of it early. NumPy only."""

from typing import Tuple

import numpy as np

from elastictrainer.selection.schedule import Schedule

FRONT = 0.5  # the first step may take half more than the mean step, the last one half of it; docs/study.md


def shares(schedule: Schedule, rho: float, step: int) -> Tuple[float, float]:
    """What a step may take early and late, where the mean step that is left takes 1.

    The shares fall along a half wave of a cosine, as the learning rate usually does: the less, the longer the
    run may take.

    Args:
        schedule: of the run; without reuse all steps have the same share, as in the paper.
        rho: requested; from a half on all steps have the same share.
        step: steps done.

    Returns:
        The share of a step up to the next selection, and that of one after it.
    """
    front = min(FRONT, 1 - 2 * rho)
    left = np.arange(step, schedule.steps)
    if front <= 0 or not schedule.reuse or not len(left):
        return 1.0, 1.0
    weights = 1 + front * np.cos(np.pi * (left + 0.5) / schedule.steps)
    here = schedule.interval_end(step) - step
    later = weights[here:] if here < len(left) else weights
    return float(weights[:here].mean() / weights.mean()), float(later.mean() / weights.mean())
