"""How a run's time is spread over its intervals: more of it early, while the learning rate is high. NumPy only."""

from typing import Tuple

import numpy as np

from elastictrainer.selection.schedule import Schedule

FRONT = 0.5  # the first step may take half more than the mean step, the last one half of it


def shares(schedule: Schedule, rho: float, step: int) -> Tuple[float, float]:
    """What a step may take up to the next selection, and after it, where the mean step that is left takes 1.

    The shares fall along a half wave of a cosine, as the learning rate usually does.

    Args:
        schedule: of the run.
        rho: requested. A high one leaves no room for more: the first step takes at most as much more than the
            mean one as it takes less than a full one.
        step: steps done.
    """
    left = np.arange(step, schedule.steps)
    if not len(left):
        return 1.0, 1.0
    front = min(FRONT, (1 - rho) / (2 * rho))
    weights = 1 + front * np.cos(np.pi * (left + 0.5) / schedule.steps)
    here = schedule.interval_end(step) - step
    later = weights[here:] if here < len(left) else weights
    return float(weights[:here].mean() / weights.mean()), float(later.mean() / weights.mean())
