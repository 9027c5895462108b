"""How many selections a run can afford. NumPy only."""

from elastictrainer.profiler.timings import TensorTimings
from elastictrainer.selection.schedule import Schedule
from elastictrainer.selection.settings import SelectionSettings

INTERVAL = 4  # epochs, where none is asked for; the paper has 3 to 4
_MOST_SPENT = 0.25  # of the time asked for, on selections: with more, fewer ones leave more time to train


def affordable(schedule: Schedule, settings: SelectionSettings, timings: TensorTimings) -> Schedule:
    """`schedule`, or one of fewer selections where that many would cost too much.

    Where a single one would cost what it is to save, none is made: elastic training is never to be slower
    than full training.

    Args:
        schedule: as planned.
        settings: how to select.
        timings: the profile; where it does not say how long a graph takes to build, the schedule stays.
    """
    full_run_ms = schedule.steps * timings.full_ms
    cost_ms = _selection_ms(schedule, settings, timings)
    if settings.rho < 1 and cost_ms >= (1 - settings.rho) * full_run_ms:
        return schedule.with_interval(None)
    interval = schedule.interval
    assert interval is not None
    while (made := len(schedule.selection_steps)) > 1 and (
        made * cost_ms > _MOST_SPENT * settings.rho * full_run_ms
    ):
        interval += 1
        schedule = schedule.with_interval(interval)
    return schedule


def _selection_ms(schedule: Schedule, settings: SelectionSettings, timings: TensorTimings) -> float:
    """About what one selection costs; 0 where the profile does not say what a graph does."""
    graph_ms = timings.metadata.get("graph_ms")
    if graph_ms is None:
        return 0.0
    graphs = 3 if schedule.reuse else 2  # of importance and of the selection, split where it is reused
    passes = 3 * settings.importance_batches  # an importance takes three passes over a probe minibatch
    passes += 1 + schedule.TIMED if schedule.reuse else 0
    return graphs * float(graph_ms) + passes * timings.full_ms
