"""The policy of a run, made from its scheme, its model and its profile."""

import functools
import itertools
from typing import Any, Callable, Iterator, List, Optional

import numpy as np

from elastictrainer.errors import UsageError
from elastictrainer.profiler.timings import TensorTimings
from elastictrainer.selection.affordable import affordable, usual_interval
from elastictrainer.selection.budget import Budget
from elastictrainer.selection.clock import Clock
from elastictrainer.selection.elastic import ElasticPolicy
from elastictrainer.selection.fixed import FixedPolicy
from elastictrainer.selection.importance import ImportanceEvaluator
from elastictrainer.selection.policy import Log, Policy
from elastictrainer.selection.profile_renewal import ProfileRenewal
from elastictrainer.selection.schedule import Schedule
from elastictrainer.selection.schemes import Scheme
from elastictrainer.selection.settings import SelectionSettings, check_tensors
from elastictrainer.steps import optimizers
from elastictrainer.steps.compiled_step import StepCache
from elastictrainer.steps.timing import time_steps


def planned_schedule(settings: SelectionSettings, epochs: int, steps_per_epoch: int, reuse: bool) -> Schedule:
    """The schedule of a run that selects, before it is known whether its selections pay."""
    interval = settings.interval or usual_interval(epochs, reuse)
    return Schedule(epochs, steps_per_epoch, interval, reuse)


def make_policy(
    scheme: Scheme,
    settings: SelectionSettings,
    timings: Optional[TensorTimings],
    epochs: int,
    steps_per_epoch: int,
    steps: StepCache,
    clock: Clock,
    probe: Callable[[int], Iterator[Any]],
    log: Log,
    say: Callable[[str], None],
    keep_profile: Callable[[TensorTimings], None],
    reuse: bool = False,
) -> Policy:
    """The policy that `scheme` asks for.

    Args:
        scheme: selects, or names the tensors to train.
        settings: how to select.
        timings: the model's profile; None only where the scheme does not select.
        epochs, steps_per_epoch: of the run.
        steps: the compiled steps; model and optimizer are theirs, and the optimizer is built.
        clock: accounts for the run's time.
        probe: from a step's number to the probe minibatches, on which the tensors are scored.
        log: takes the record of each selection.
        say: takes a line for the user.
        keep_profile: takes a renewed profile.
        reuse: frozen work may be recorded and replayed.

    Raises:
        UsageError: no profile where one is needed, that of another model, or a rho below its rho_min.
    """
    model, optimizer = steps.objective.model, steps.optimizer
    tensors = len(model.trainable_variables)
    interval = settings.interval or usual_interval(epochs, reuse)
    if scheme.importance_metric is None:
        if timings is not None:
            check_tensors(timings, tensors)
        at_interval = functools.partial(scheme.at_interval, model, optimizer)
        recorded = epochs if reuse else 0
        return FixedPolicy(_checked(scheme, model, tensors), timings, at_interval, interval, log, recorded)

    schedule = planned_schedule(settings, epochs, steps_per_epoch, reuse)
    profile = settings.check_profile(timings, tensors, schedule.longest())
    if settings.interval is None:
        planned, schedule = schedule, affordable(schedule, settings, profile)
        if schedule is not planned:
            say(_too_short(planned, schedule))
    optimizers.let_rest(optimizer, model.trainable_variables)
    evaluator = ImportanceEvaluator(steps.objective, optimizer, scheme.importance_metric, steps, not reuse)

    def score(step: int) -> np.ndarray:
        return evaluator(itertools.islice(repeated(probe, step), settings.importance_batches))

    def time_full(step: int) -> List[float]:
        full = steps.get(np.ones(tensors, bool))
        return time_steps(full, repeated(probe, step), schedule.TIMED, warm_up=schedule.WARM_UP)

    def restart(mask: np.ndarray) -> None:
        resting = [v for v, trains in zip(model.trainable_variables, mask) if not trains]
        optimizers.start_again(optimizer, resting)

    return ElasticPolicy(
        Budget(settings.rho, profile, schedule),
        score,
        clock,
        solver=getattr(scheme, "solver", None) or settings.solver,
        feedback=settings.feedback,
        reprofile=settings.reprofile,
        at_rest=restart,
        time_full=time_full,
        renewal=ProfileRenewal(steps, keep_profile),
        log=log,
        say=say,
    )


def _checked(scheme: Scheme, model: Any, tensors: int) -> np.ndarray:
    """(N,) bool: the scheme's mask; UsageError where it is none."""
    mask = np.asarray(scheme.mask(model))
    if mask.shape != (tensors,) or mask.dtype != bool or not mask.any():
        raise UsageError(
            f"{type(scheme).__name__}.mask gave {mask.dtype} of shape {mask.shape}; needed: bool of shape "
            f"({tensors},), in the order of model.trainable_weights, with one True at least."
        )
    return mask


def repeated(probe: Callable[[int], Iterator[Any]], step: int) -> Iterator[Any]:
    """The minibatches that `probe` gives, again and again; UsageError where it gives none."""
    while True:
        minibatches = iter(probe(step))
        for first in minibatches:
            yield first
            break
        else:
            raise UsageError("the probe gave no minibatch: it must give them anew each time it is called.")
        yield from minibatches


def _too_short(planned: Schedule, schedule: Schedule) -> str:
    """What is said of a schedule with fewer selections than planned."""
    if schedule.interval is None:
        return (
            "this run is too short for a selection of tensors to pay: it trains all of them, as --scheme "
            "full does (--interval N selects all the same)"
        )
    planned_ones, made = len(planned.selection_steps), len(schedule.selection_steps)
    return f"this run is too short for {planned_ones} selections to pay: it makes {made}"
