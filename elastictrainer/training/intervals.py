"""The start of an interval: tensors are selected, activations are cached, the head is solved."""

from typing import Optional

import numpy as np

from elastictrainer.cache.storage import CacheError
from elastictrainer.runs.log import LOG
from elastictrainer.training import stopwatch
from elastictrainer.training.cached_steps import CachedStepRunner
from elastictrainer.training.forecast import GRAPH_STEPS
from elastictrainer.training.head_pass import HeadPass
from elastictrainer.training.state import RunState

# With MobileNetV2, building the graphs of the first interval takes at most this share of what scoring
# takes with its graphs.
_LIKE_SCORING = 0.4


class Intervals:
    """Begins the intervals of a run."""

    def __init__(
        self, run_state: RunState, cached_steps: Optional[CachedStepRunner], head: Optional[HeadPass]
    ):
        """
        Args:
            run_state: of the run; its policy is made.
            cached_steps: writes the cache; None: every step computes everything.
            head: solves the head before the first interval; None: it stays.
        """
        self._state, self._cached_steps, self._head = run_state, cached_steps, head

    def begin(self) -> None:
        """Begin the next interval; the run is at the start of an epoch."""
        state, policy = self._state, self._state.policy
        step = state.progress.step
        first = self._head if not step else None
        if self._cached_steps is not None:
            self._cached_steps.free_cache()
        if first and policy.needs_scores:
            with state.watch.lap(stopwatch.HEAD):
                first.solve_on_sample()
        cached = self._cached_steps is not None
        with state.watch.lap(stopwatch.IMPORTANCE):
            policy.score()
        target = self._target(cached)  # now, for scoring has taken time
        with state.watch.lap(stopwatch.SELECTION):
            mask = policy.begin(target, cached)
        if self._cached_steps is not None and not mask.all():
            try:
                self._cached_steps.write_cache(mask, first)
            except CacheError as error:
                self._without_cache(error)
                if first:
                    first.clear()
        policy.settle(step)
        if first:
            with state.watch.lap(stopwatch.HEAD):
                about = first.finish()
            # `finish` solves the head on the features of the whole pass: only now are its weights final.
            state.tell("on_head", {**about, **state.evaluate(0)})
            self.go_on()  # the cache holds the provisional head where the selection leaves it out
            state.follow_deadline()  # evaluating the head has shown what the evaluation at the end takes

    def go_on(self) -> None:
        """Continue the interval in another epoch; an outdated cache is written again."""
        if self._cached_steps is None:
            return
        try:
            self._cached_steps.refresh_cache()
        except CacheError as error:
            self._without_cache(error)
            self._state.policy.settle(self._state.progress.step)

    def resume(self) -> None:
        """Go on with an interval of an interrupted run."""
        if self._cached_steps is None:
            return
        try:
            self._cached_steps.resume()
        except CacheError as error:  # less room, or another device, than there was
            self._without_cache(error)
            self._state.policy.settle(self._state.progress.step)

    def _without_cache(self, error: Exception) -> None:
        """Do all work in every step of the interval, and log why."""
        assert self._cached_steps is not None
        self._cached_steps.free_cache()
        LOG.info(f"not cached: {error}")
        with self._state.watch.lap(stopwatch.SELECTION):
            self._state.policy.without_cache(self._target(False))

    def _target(self, cached: bool) -> float:
        """Return the time of a step of the interval that begins, over a full step's.

        A cached step: so long that the planned epochs fit into the interval, after its cache is written. A
        step that does all work: the share of full training's time that was asked for.
        """
        state, policy = self._state, self._state.policy
        plan, profile = policy.plan, policy.profile
        rho = 1.0 if state.rho is None else state.rho
        if not cached or profile is None:
            return rho
        # With W the time to build graphs and to write the cache, the steps of the interval have the rest of
        # its time: target = (time left to its end - W) / steps, over a full step.
        steps = plan.epochs_per_interval * plan.steps_per_epoch
        left_s = state.budget.seconds_until(plan.end(policy.interval), state.spent_s())
        full_s = 1e-3 * (state.full_step_ms() or profile.full_ms)
        if left_s is None:  # the steps end the run: the profile alone decides
            full_s = 1e-3 * profile.full_ms
            left_s = rho * full_s * steps
        else:
            left_s -= self._graphs_s(full_s)
            if self._head and not policy.interval:
                left_s -= self._head.solving_s + (state.deadline.check_s if state.deadline else 0.0)
        # Caching a minibatch takes a forward pass, and writing the cut of the middle tensor.
        cache_write_ms = float(profile.forward.amount.sum())
        if profile.cache is not None:
            cache_write_ms += float(np.median(profile.cache.cache_write_ms))
        cache_write_s = plan.steps_per_epoch * full_s * cache_write_ms / profile.full_ms
        return (left_s - cache_write_s) / steps / full_s

    def _graphs_s(self, full_s: float) -> float:
        """Return the expected seconds of building an interval's graphs; `full_s`: a full step takes."""
        watch, policy = self._state.watch, self._state.policy
        if policy.interval:
            return watch.of(stopwatch.TRACING) / policy.interval
        if policy.needs_scores:
            return _LIKE_SCORING * watch.of(stopwatch.IMPORTANCE, stopwatch.FULL_TRACING)
        return GRAPH_STEPS * full_s
