"""What a run trains with, made on its first minibatch: profile, plan, policy, compiled steps."""

from dataclasses import dataclass
from typing import Any, Callable, Dict, Optional

import tensorflow as tf

from elastictrainer.errors import UsageError
from elastictrainer.profiler.timings import TensorTimings
from elastictrainer.reuse.settings import ReuseSettings
from elastictrainer.selection.budget import Budget
from elastictrainer.selection.build import make_policy
from elastictrainer.selection.plan import plan, require_reachable
from elastictrainer.selection.schemes import Scheme
from elastictrainer.selection.settings import SelectionSettings
from elastictrainer.steps import compiled, optimizers
from elastictrainer.steps.compiled_step import StepCache
from elastictrainer.steps.keras_compat import count_step
from elastictrainer.training.batch_source import BatchSource
from elastictrainer.training.budgeting import Budgeting, affordable, full_epochs
from elastictrainer.training.feed import Feed
from elastictrainer.training.head_pass import HeadPass
from elastictrainer.training.intervals import Intervals
from elastictrainer.training.recorder import Recorder
from elastictrainer.training.run_profile import able_to_record, made_profile
from elastictrainer.training.state import RunState

_OPENING = 48  # full steps before the first selection where the head is not solved


@dataclass(frozen=True)
class Wanted:
    """What `Trainer` was asked for.

    Attributes:
        scheme, selection: which tensors train.
        timings: the model's profile; None: it is made where the scheme selects.
        reuse: how frozen work is recorded.
        head: "solve" or "keep"; see Trainer.
        on_selection, on_head: take the record of each selection, and what is known of the solved head.
    """

    scheme: Scheme
    selection: SelectionSettings
    timings: Optional[TensorTimings]
    reuse: ReuseSettings
    head: str
    on_selection: Callable[[Dict[str, Any]], None]
    on_head: Callable[[Dict[str, Any]], None]


@dataclass(frozen=True)
class Prepared:
    """What a run trains with.

    Attributes:
        timings: the model's profile.
        count_step: counts a step where Keras does, and returns the metrics so far by name.
        source: gives the minibatches.
        recorder: records frozen work.
        intervals: begins the intervals.
        budgeting: sets the budget.
        opening: full steps before the first selection: a head that is not solved says nothing of the tensors
            below it.
        by_clock: whether the clock is to end the run.
    """

    timings: Optional[TensorTimings]
    count_step: Callable[[], Dict[str, Any]]
    source: BatchSource
    recorder: Recorder
    intervals: Intervals
    budgeting: Budgeting
    opening: int
    by_clock: bool


def prepare(state: RunState, feed: Feed, wanted: Wanted) -> Prepared:
    """Make every variable, the profile and the policy, on the first minibatch; the policy is `state`'s then.

    Raises:
        UsageError: nothing to train, a time that cannot be had, or a head that cannot be solved.
        DataError: the first minibatch cannot be read.
    """
    model, scheme, reuse = state.model, wanted.scheme, wanted.reuse
    minibatch = feed.peek()
    compiled.build(model, *minibatch)
    if not model.trainable_variables:
        raise UsageError("the model has no trainable tensor. Set `trainable = True` on a layer.")
    optimizers.build(model.optimizer, model.trainable_variables)
    if feed.is_full(minibatch):
        feed.keep(minibatch)
    metrics = compiled.CompiledMetrics(model)
    mean = state.workers.mean if state.workers else None
    objective = compiled.CompiledObjective(model, None, scheme.penalty(model), mean)
    steps = StepCache(objective, model.optimizer, [metrics])
    selects, timings = scheme.importance_metric is not None, wanted.timings
    if selects and timings is None:
        timings = made_profile(state, objective, minibatch, metrics)
    recorded = reuse.reuse != "off"
    if recorded:
        recorded, timings = able_to_record(
            state, timings, objective, minibatch, feed.spec, wanted.selection.deterministic
        )
    if wanted.head == "solve" and not feed.can_pass:
        raise UsageError(
            "the head cannot be solved: the data can be read once only. Pass arrays, or a "
            "tf.data.Dataset of known length."
        )
    head = HeadPass(state, feed) if wanted.head == "solve" else None
    steered = selects and not wanted.selection.deterministic and not state.workers
    by_clock = state.deadline is not None or (steered and recorded)
    if state.rho is not None and timings is not None:
        require_reachable(state.rho, timings, recorded)
    run_plan = plan(
        timings,
        state.steps_per_epoch,
        state.epochs,
        full_epochs(state, timings),
        recorded and selects,  # others have intervals for what they do by themselves, such as pruning
        wanted.selection.interval,
        by_clock,
    )
    scheme = affordable(state, scheme, timings, run_plan, recorded, head is not None)
    state.budget = Budget(steps=None if by_clock else state.epochs * state.steps_per_epoch)
    state.policy = make_policy(
        scheme,
        wanted.selection,
        timings,
        run_plan,
        steps,
        state.watch,
        feed.probe,
        wanted.on_selection,
        state.say,
    )
    opening = 0
    if state.policy.scores and head is None:
        opening = max(1, min(_OPENING, state.steps_per_epoch // 4))
    recorder = Recorder(state, feed, steps, reuse)

    def counted() -> Dict[str, Any]:
        count_step(model)
        return metrics.results()

    return Prepared(
        timings,
        tf.function(counted),  # a graph takes half the time of the ops one by one
        BatchSource(state, feed, recorder, steps),
        recorder,
        Intervals(state, feed, recorder if recorded else None, head, wanted.on_head),
        Budgeting(state, feed, steps, recorded, head is not None),
        opening,
        by_clock,
    )
