"""The parts of a run, made on its first minibatch: profile, plan, policy, compiled steps."""

import dataclasses
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Optional, Tuple

from elastictrainer.errors import UsageError
from elastictrainer.profiler.profile import Profile
from elastictrainer.reuse.settings import ReuseSettings
from elastictrainer.runs.log import LOG
from elastictrainer.selection.budget import Budget
from elastictrainer.selection.plan import PLAIN_INTERVAL, make_plan, require_reachable
from elastictrainer.selection.schemes import Scheme
from elastictrainer.selection.settings import SelectionSettings
from elastictrainer.steps import compiled, optimizers
from elastictrainer.steps.snapshot import digest
from elastictrainer.training.affordability import affordable_scheme
from elastictrainer.training.batch_source import BatchSource
from elastictrainer.training.budgeting import Budgeting, full_epochs
from elastictrainer.training.cached_steps import CachedStepRunner
from elastictrainer.training.feed import Feed, Minibatch
from elastictrainer.training.forecast import HeadWork
from elastictrainer.training.head_pass import HeadPass
from elastictrainer.training.intervals import Intervals
from elastictrainer.training.kept import Compiled, Kept, compile_steps, is_same, made_from
from elastictrainer.training.memory_limit import MemoryLimit
from elastictrainer.training.policies import make_policy
from elastictrainer.training.run_profile import check_cacheable, make_profile
from elastictrainer.training.state import RunState

_OPENING = 48  # full steps before the first selection where the head is not solved


@dataclass(frozen=True)
class Wanted:
    """The request of a `Trainer`.

    Attributes:
        scheme, selection: choose the tensors to train.
        profile: the model's profile; None: it is made where the scheme selects.
        reuse: settings of the activation cache.
        head: "solve" or "keep"; see Trainer.
        on_selection, on_head: take the record of each selection, and what is known of the solved head.
        profiles: whether `profile` were made by an earlier call, and are made again for another model.
        memory: bytes that the process may have resident; None: any.
    """

    scheme: Scheme
    selection: SelectionSettings
    profile: Optional[Profile]
    reuse: ReuseSettings
    head: str
    on_selection: Callable[[Dict[str, Any]], None]
    on_head: Callable[[Dict[str, Any]], None]
    profiles: bool
    memory: Optional[float] = None


@dataclass(frozen=True)
class Prepared:
    """The parts that a run trains with.

    Attributes:
        profile: the model's profile.
        compiled: graphs, which the next run may use.
        source: gives the minibatches.
        cached_steps: writes and reads the activation cache.
        intervals: begins the intervals.
        budgeting: sets the budget.
        opening: full steps before the first selection: with a head that is not solved the importances of the
            tensors below it mean nothing.
        by_clock: whether the clock is to end the run.
        goes_on: whether the selection of an earlier run is trained on.
    """

    profile: Optional[Profile]
    compiled: Compiled
    source: BatchSource
    cached_steps: CachedStepRunner
    intervals: Intervals
    budgeting: Budgeting
    opening: int
    by_clock: bool
    goes_on: bool


def prepare(state: RunState, feed: Feed, wanted: Wanted, kept: Kept) -> Prepared:
    """Make every variable, the profile and the policy, on the first minibatch; the policy is `state`'s then.

    What an earlier run has left is used where it still holds.

    Raises:
        UsageError: nothing to train, an unachievable time, or a head that cannot be solved.
        DataError: the first minibatch cannot be read.
    """
    scheme, minibatch = wanted.scheme, feed.peek()
    if feed.is_full(minibatch):
        feed.remember(minibatch)
    parts, profile, kept = _graphs(state, wanted, kept, minibatch, feed.spec)
    selects = scheme.selects
    # One epoch would never read its cache, and a head that was solved has learned more since.
    short = state.epochs == 1 and state.deadline is None and wanted.head == "keep"
    cached, profile = _profile(state, wanted, parts, profile, minibatch, feed.spec, short)
    head = _head_pass(state, feed) if wanted.head == "solve" and kept.compiled is None else None
    steered = selects and not wanted.selection.deterministic and not state.workers
    by_clock = state.deadline is not None or (steered and cached)
    if state.rho is not None and profile is not None:
        require_reachable(state.rho, profile, cached)
    limit, profile, reuse = _within_memory(state, wanted, profile)
    run_plan = make_plan(
        profile,
        state.steps_per_epoch,
        state.epochs,
        full_epochs(state, profile),
        cached and selects,  # others have intervals for what they do by themselves, such as pruning
        wanted.selection.interval,
        by_clock,
    )
    goes_on = bool(short and kept.policy and _still_holds(state, kept))
    if goes_on:
        run_plan = dataclasses.replace(run_plan, starts=[])
    head_work = HeadWork(head.sampled, head.solving_s) if head is not None else None
    if by_clock:
        scheme = affordable_scheme(state, scheme, profile, run_plan, cached, head_work)
    # A solved head is the best one for its features: steps would only move it away.
    state.head_alone = selects and not scheme.selects
    if state.rates is not None and state.head_alone:
        state.rates = dataclasses.replace(state.rates, highest=0.0)
    elif state.rates is not None and by_clock and selects and cached:
        rates = state.rates.for_epochs(run_plan.epochs_per_interval)
        if rates.highest != state.rates.highest:
            LOG.info(f"few epochs: the learning rate is {rates.highest:g} at most")
        state.rates = rates
    state.budget = Budget(steps=None if by_clock else state.epochs * state.steps_per_epoch)
    state.policy = make_policy(
        scheme,
        wanted.selection,
        profile,
        run_plan,
        parts.steps,
        feed.probe if limit is None else limit.cut(feed.probe),
        wanted.on_selection,
        parts.evaluator if scheme is wanted.scheme else None,
        None if limit is None else limit.for_steps,
        Path(reuse.folder or tempfile.gettempdir()) if limit is not None and limit.must_undo else None,
    )
    if goes_on:
        state.policy.restore(kept.policy or {})
    opening = 0
    if state.policy.scores and head is None and not kept.steps:
        opening = max(1, min(_OPENING, state.steps_per_epoch // 4))
    cached_steps = CachedStepRunner(state, feed, parts.steps, reuse)
    return Prepared(
        profile,
        parts,
        BatchSource(state, feed, cached_steps, parts.steps),
        cached_steps,
        Intervals(state, feed, cached_steps if cached else None, head, wanted.on_head),
        Budgeting(state, feed, parts.steps, cached, head_work, limit),
        opening,
        by_clock,
        goes_on,
    )


def _graphs(
    state: RunState, wanted: Wanted, kept: Kept, minibatch: Minibatch, spec: Any
) -> Tuple[Compiled, Optional[Profile], Kept]:
    """Return the run's graphs, its profile so far, and the state of the earlier run that still holds."""
    parts = kept.compiled
    if parts is not None and is_same(made_from(state.model, spec), parts.made_from):
        state.progress.full_ms = list(kept.full_ms)
        return parts, wanted.profile, kept
    profile = wanted.profile
    if parts is not None:
        LOG.info("the model, its optimizer, its loss or the shape of the data has changed: compiling again")
        kept, profile = Kept(), None if wanted.profiles else profile
    return _compiled(state, wanted.scheme, minibatch, spec), profile, kept


def _profile(
    state: RunState,
    wanted: Wanted,
    parts: Compiled,
    profile: Optional[Profile],
    minibatch: Minibatch,
    spec: Any,
    short: bool,
) -> Tuple[bool, Optional[Profile]]:
    """Return whether activations are cached, and the profile, which is made where the scheme selects.

    `short`: a run of one epoch, which caches nothing.
    """
    selects, objective = wanted.scheme.selects, parts.steps.objective
    if selects and profile is None:
        profile = make_profile(state, objective, minibatch, parts.steps.metrics[0])
    if wanted.reuse.mode == "off" or (short and selects):
        return False, profile
    return check_cacheable(state, profile, objective, minibatch, spec, wanted.selection.deterministic)


def _within_memory(
    state: RunState, wanted: Wanted, profile: Optional[Profile]
) -> Tuple[Optional[MemoryLimit], Optional[Profile], ReuseSettings]:
    """Return the limit of memory, with the profile and the settings of the cache that it leaves."""
    if wanted.memory is None or profile is None:
        return None, profile, wanted.reuse
    limit = MemoryLimit(wanted.memory, profile, state.model, state.model.optimizer)
    for line in limit.lines():
        LOG.info(line)
    return limit, limit.profile, limit.reuse(wanted.reuse)


def _compiled(state: RunState, scheme: Scheme, minibatch: Minibatch, spec: Any) -> Compiled:
    """Make every variable of model and optimizer on a minibatch, and prepare their graphs."""
    model = state.model
    compiled.build(model, *minibatch)
    if not model.trainable_variables:
        raise UsageError("the model has no trainable tensor. Set `trainable = True` on a layer.")
    optimizers.build(model.optimizer, model.trainable_variables)
    return compile_steps(model, scheme, spec, state.workers.mean if state.workers else None)


def _head_pass(state: RunState, feed: Feed) -> HeadPass:
    if not feed.can_pass:
        raise UsageError(
            "the head cannot be solved: the data can be read once only. Pass arrays, or a "
            "tf.data.Dataset of known length."
        )
    return HeadPass(state, feed)


def _still_holds(state: RunState, kept: Kept) -> bool:
    """Return whether the selection of an earlier run is to be trained on; logs why not."""
    if kept.steps >= PLAIN_INTERVAL * state.steps_per_epoch:
        return False
    if kept.weights != digest(state.model.variables):
        LOG.info("weights were changed since the last call of fit: tensors are scored again")
        return False
    return True
