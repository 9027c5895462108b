"""The parts of a run, made on its first minibatch: profile, plan, policy, compiled steps."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Optional, Tuple

from elastictrainer.cache.settings import CacheSettings
from elastictrainer.errors import UsageError
from elastictrainer.profiler.profile import Profile
from elastictrainer.runs.log import LOG
from elastictrainer.selection.budget import Budget
from elastictrainer.selection.plan import PLAIN_INTERVAL, Plan, make_plan, require_reachable
from elastictrainer.selection.policy import Policy
from elastictrainer.selection.schemes import Scheme
from elastictrainer.selection.settings import SelectionSettings
from elastictrainer.steps import optimizers
from elastictrainer.steps.objective import Minibatch, make_variables
from elastictrainer.steps.rates import RateSchedule
from elastictrainer.steps.requirements import require_trainable
from elastictrainer.steps.snapshot import digest
from elastictrainer.training.affordability import affordable_scheme
from elastictrainer.training.between_fits import FitCarryover, Graphs, make_graphs
from elastictrainer.training.budgeting import Budgeting, full_epochs
from elastictrainer.training.cached_steps import CachedStepRunner
from elastictrainer.training.feed import Feed
from elastictrainer.training.forecast import RunShape
from elastictrainer.training.head_pass import HeadPass
from elastictrainer.training.intervals import Intervals
from elastictrainer.training.memory_limit import MemoryLimit
from elastictrainer.training.policies import make_policy
from elastictrainer.training.run_profile import profile_for_fit, why_uncacheable, with_cache_costs
from elastictrainer.training.state import RunState
from elastictrainer.training.step_source import StepSource

_OPENING = 48  # full steps before the first selection where the head is not solved


@dataclass(frozen=True)
class TrainerRequest:
    """The request of a `Trainer`.

    Attributes:
        scheme, selection: choose the tensors to train.
        profile: the model's profile; None: it is made where the scheme selects.
        cache: settings of the activation cache.
        head: "solve" or "keep"; see Trainer.
        owns_profile: whether `profile` was made by an earlier call, and is made again for another model.
        memory: bytes that the process may have resident; None: any.
        resumed: whether the run goes on from a checkpoint, after its head was solved.
    """

    scheme: Scheme
    selection: SelectionSettings
    profile: Optional[Profile]
    cache: CacheSettings
    head: str
    owns_profile: bool
    memory: Optional[float] = None
    resumed: bool = False


@dataclass(frozen=True)
class Prepared:
    """The parts that a run trains with.

    Attributes:
        graphs: those of the steps, which the next run may use.
        source: gives the minibatches.
        cached_steps: writes and reads the activation cache.
        intervals: begins the intervals.
        budgeting: sets the budget.
        opening: full steps before the first selection: with a head that is not solved the importances of the
            tensors below it mean nothing.
    """

    graphs: Graphs
    source: StepSource
    cached_steps: CachedStepRunner
    intervals: Intervals
    budgeting: Budgeting
    opening: int


def prepare(state: RunState, feed: Feed, request: TrainerRequest, carried: FitCarryover) -> Prepared:
    """Make what a run needs, on its first minibatch: every variable, the profile, the plan, the policy.

    `state` gets its policy, its budget and its rates. What an earlier run has left is used where it still
    holds.

    Raises:
        UsageError: nothing to train, an unachievable time, or a head that cannot be solved.
        DataError: the first minibatch cannot be read.
    """
    minibatch = feed.peek()
    feed.remember(minibatch)
    first_call = not carried.weights
    graphs, profile, carried = _graphs(state, request, carried, minibatch, feed.spec)
    # One epoch would never read its cache, and a head that was solved has learned more since.
    short = state.epochs == 1 and state.deadline is None and request.head == "keep"
    if request.scheme.selects and profile is None:
        profile = profile_for_fit(state, graphs.steps, minibatch)
    cached = _is_cached(state, request, profile, feed.spec, short)
    if cached:
        profile = with_cache_costs(state, profile, graphs.steps, minibatch)
    solves = request.head == "solve" and (first_call or not request.scheme.trains)
    head = _head_pass(state, feed) if solves else None
    if state.rho is not None and profile is not None:
        require_reachable(state.rho, profile, cached)
    limit = _memory_limit(state, request, profile)
    profile, cache = (profile, request.cache) if limit is None else (limit.profile, limit.cache)
    by_clock = _by_clock(state, request, cached)
    plan = _plan(state, request, profile, cached, by_clock)
    earlier = carried.policy if short and carried.policy and _still_holds(state, carried) else None
    if earlier:
        plan = dataclasses.replace(plan, starts=[])
    shape = None if profile is None else RunShape(profile, plan, cached, head)
    scheme = request.scheme if limit is None else limit.scheme(request.scheme, solves and not request.resumed)
    if by_clock and shape:
        scheme = affordable_scheme(state, scheme, shape)
    policy = make_policy(
        scheme,
        request.selection,
        profile,
        plan,
        graphs.steps,
        feed.probe,
        log=state.note_selection,
        scorer=graphs.scorer if scheme is request.scheme else None,
        limit=limit,
    )
    if earlier:
        policy.restore(earlier)

    state.policy = policy
    state.budget = Budget(steps=None if by_clock else state.epochs * state.steps_per_epoch)
    state.head_alone = not scheme.trains
    state.rates = _rates(state, plan, scheme.selects and by_clock and cached)
    cached_steps = CachedStepRunner(state, feed, graphs.steps, cache)
    return Prepared(
        graphs=graphs,
        source=StepSource(state, feed, cached_steps, graphs.steps),
        cached_steps=cached_steps,
        intervals=Intervals(state, cached_steps if cached and scheme.trains else None, head),
        budgeting=Budgeting(state, feed, graphs.steps, shape, limit),
        opening=_opening(state, policy, head, carried),
    )


def _graphs(
    state: RunState, request: TrainerRequest, carried: FitCarryover, minibatch: Minibatch, spec: Any
) -> Tuple[Graphs, Optional[Profile], FitCarryover]:
    """Return the run's graphs, its profile so far, and the state of the earlier run that still holds."""
    graphs = carried.graphs
    if graphs is not None and graphs.hold(state.model, spec):
        state.progress.timed_full_ms = list(carried.timed_full_ms)
        return graphs, request.profile, carried
    profile = request.profile
    if graphs is not None:
        LOG.info("the model, its optimizer, its loss or the shape of the data has changed: compiling again")
        carried, profile = FitCarryover(), None if request.owns_profile else profile
    return _new_graphs(state, request.scheme, minibatch, spec), profile, carried


def _is_cached(
    state: RunState, request: TrainerRequest, profile: Optional[Profile], spec: Any, short: bool
) -> bool:
    """Return whether activations are cached; logs why they cannot be. `short`: a run of one epoch."""
    if request.cache.mode == "off" or (short and request.scheme.selects):
        return False
    why = why_uncacheable(state, profile, spec, request.selection.deterministic)
    if why:
        LOG.info(f"not cached: {why}")
    return not why


def _memory_limit(
    state: RunState, request: TrainerRequest, profile: Optional[Profile]
) -> Optional[MemoryLimit]:
    if request.memory is None or profile is None:
        return None
    limit = MemoryLimit(request.memory, profile, state.model, state.model.optimizer, request.cache)
    for line in limit.lines():
        LOG.info(line)
    return limit


def _by_clock(state: RunState, request: TrainerRequest, cached: bool) -> bool:
    """Return whether the clock is to end the run."""
    steered = request.scheme.selects and not request.selection.deterministic
    return state.deadline is not None or (steered and cached)


def _plan(
    state: RunState, request: TrainerRequest, profile: Optional[Profile], cached: bool, by_clock: bool
) -> Plan:
    return make_plan(
        profile,
        state.steps_per_epoch,
        state.epochs,
        full_epochs(state, profile),
        # Other schemes have intervals for what they do by themselves, such as pruning.
        cached and request.scheme.selects,
        request.selection.interval,
        by_clock,
    )


def _rates(state: RunState, plan: Plan, selecting: bool) -> Optional[RateSchedule]:
    """Return the learning rate of the run; `selecting`: by the clock, on cached activations."""
    if state.rates is None:
        return None
    rates = state.rates.for_epochs(plan.epochs_per_interval) if selecting else state.rates
    if rates.highest != state.rates.highest:
        LOG.info(f"few epochs: the learning rate is {rates.highest:g} at most")
    return rates


def _opening(state: RunState, policy: Policy, head: Optional[HeadPass], carried: FitCarryover) -> int:
    """Return the number of full steps before the first selection."""
    if not policy.needs_scores or head is not None or carried.steps:
        return 0
    return max(1, min(_OPENING, state.steps_per_epoch // 4))


def _new_graphs(state: RunState, scheme: Scheme, minibatch: Minibatch, spec: Any) -> Graphs:
    """Make every variable of model and optimizer on a minibatch, and prepare their graphs."""
    model = state.model
    make_variables(model, *minibatch)
    require_trainable(model)
    optimizers.build(model.optimizer, model.trainable_variables)
    return make_graphs(model, scheme, spec)


def _head_pass(state: RunState, feed: Feed) -> HeadPass:
    if not feed.repeatable:
        raise UsageError(
            "the head cannot be solved: the data can be read once only. Pass arrays, or a "
            "tf.data.Dataset of known length."
        )
    return HeadPass(state, feed)


def _still_holds(state: RunState, carried: FitCarryover) -> bool:
    """Return whether the selection of an earlier run is to be trained on; logs why not."""
    if carried.steps >= PLAIN_INTERVAL * state.steps_per_epoch:
        return False
    if carried.weights != digest(state.model.variables):
        LOG.info("weights were changed since the last call of fit: tensors are scored again")
        return False
    return True
