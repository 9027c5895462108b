"""How often a run selects where it is not told, and how many selections it can afford. NumPy only."""

from elastictrainer.profiler.timings import TensorTimings
from elastictrainer.selection.schedule import Schedule
from elastictrainer.selection.settings import SelectionSettings

INTERVAL = 4  # epochs between two selections; the paper has 3 to 4
REUSE_INTERVAL = 6  # the same where each interval begins with dear steps that record; docs/study.md compares
_MOST_SPENT = 0.25  # of the time asked for, on selections: with more, fewer ones leave more time to train


def usual_interval(epochs: int, reuse: bool) -> int:
    """Epochs between two selections of a run of `epochs`; with `reuse`, fewer if it is shorter than 12."""
    return min(REUSE_INTERVAL, max(INTERVAL, epochs // 2)) if reuse else INTERVAL


def affordable(schedule: Schedule, settings: SelectionSettings, timings: TensorTimings) -> Schedule:
    """`schedule`, or one of fewer selections where that many would cost too much.

    Where a single one would cost what it is to save, none is made: elastic training is never to be slower
    than full training. The graph that scores tensors is built once, another for the steps of each selection.

    Args:
        schedule: as planned.
        settings: how to select.
        timings: the profile; where it does not say how long a graph takes to build, the schedule stays.
    """
    full_run_ms = schedule.steps * timings.full_ms
    graph_ms = float(timings.metadata.get("graph_ms", 0.0))
    if not graph_ms:
        return schedule
    # Of each: the graph of its steps, and an importance, three passes over each probe minibatch.
    cost_ms = graph_ms + 3 * settings.importance_batches * timings.full_ms
    if settings.rho < 1 and graph_ms + cost_ms >= (1 - settings.rho) * full_run_ms:
        return schedule.with_interval(None)
    interval = schedule.interval
    assert interval is not None
    while (made := len(schedule.selection_steps)) > 1 and (
        graph_ms + made * cost_ms + schedule.timed_before(schedule.selection_steps) * timings.full_ms
        > _MOST_SPENT * settings.rho * full_run_ms
    ):
        interval += 1
        schedule = schedule.with_interval(interval)
    return schedule
