"""Gives a run its budget: by its deadline, or by full steps that are timed at its start."""

import contextlib
from typing import Optional

import numpy as np

from elastictrainer.profiler.profile import Profile
from elastictrainer.runs.log import LOG
from elastictrainer.steps.compiled_step import CompiledStep, CompiledSteps
from elastictrainer.steps.objective import KerasObjective
from elastictrainer.steps.timing import time_steps
from elastictrainer.training.feed import Feed
from elastictrainer.training.forecast import RunShape, forecast
from elastictrainer.training.memory_limit import MemoryLimit
from elastictrainer.training.policies import repeated
from elastictrainer.training.state import RunState
from elastictrainer.training.stopwatch import CALIBRATION, FULL_TRACING, TIMING


def full_epochs(state: RunState, profile: Optional[Profile]) -> float:
    """Return a run's time in epochs of full training, as far as it is known before any step."""
    if state.deadline is None or profile is None:
        return state.epochs * (1.0 if state.rho is None else state.rho)
    left_s = state.deadline.for_training_s() - state.spent_s()
    return left_s / (1e-3 * profile.full_ms * state.steps_per_epoch)


class Budgeting:
    """Times full steps, sets the budget of a run by the clock, and says what its parts will take."""

    def __init__(
        self,
        run_state: RunState,
        feed: Feed,
        steps: CompiledSteps,
        shape: Optional[RunShape],
        memory: Optional[MemoryLimit] = None,
    ):
        """
        Args:
            run_state: of the run; its policy is made.
            feed: gives the minibatches that full steps are timed on.
            steps: the run's compiled steps.
            shape: the parts that its time is divided among; None: there is no profile to predict them.
            memory: a limit, within which full steps are timed on smaller minibatches; None: no limit.
        """
        self._state, self._feed, self._steps = run_state, feed, steps
        self._shape, self._memory = shape, memory

    def begin(self) -> None:
        """Set the seconds of a run by the clock that is at its beginning, and say the plan.

        Raises:
            UsageError: a deadline leaves no time to train.
        """
        state = self._state
        self.time_full_steps()
        if state.budget.steps is not None:
            return
        state.follow_deadline()
        if state.deadline is None:
            full_s = 1e-3 * (state.full_step_ms() or 0.0)
            full_training_s = full_s * state.epochs * state.steps_per_epoch + state.compiling_s()
            state.budget.seconds = (state.rho or 1.0) * full_training_s
            state.budget.least = state.steps_per_epoch
        assert state.budget.seconds is not None
        self._say_plan(state.budget.seconds)

    def time_full_steps(self, again: bool = False) -> None:
        """Time full steps for a scheme that leaves tensors out, and leave no trace of them.

        Where their time decides how long the run may take, it is a part of the run. Where the head trains
        alone, or they would take too much memory, their time is the profile's. `again`: although some were
        timed.
        """
        state, model, policy = self._state, self._state.model, self._state.policy
        if not policy.selects and policy.mask.all():
            return
        if state.deadline is not None or (state.progress.timed_full_ms and not again):
            return  # the budget does not depend on it, or is set
        if state.head_alone or (self._memory is not None and not self._memory.times_full_steps):
            if self._shape is not None:
                state.progress.timed_full_ms.append(self._shape.profile.full_ms)
            return
        with contextlib.ExitStack() as laps:
            variables, metrics = model.trainable_variables, self._steps.metrics
            if not policy.selects:
                laps.enter_context(state.watch.lap(CALIBRATION))
                objective = KerasObjective(model)
                full = CompiledStep(objective, model.optimizer, variables, metrics)
            else:
                full = self._steps.get(np.ones(len(variables), bool))
                if self._memory is None:
                    with state.watch.lap(FULL_TRACING):
                        full.trace(*self._feed.spec)
                laps.enter_context(state.watch.lap(TIMING))
            # Within a limit of memory full steps take fewer examples, and the profile scales their time up.
            probe = self._feed.probe if self._memory is None else self._memory.shortened(self._feed.probe)
            scale = 1.0 if self._memory is None else self._memory.scale
            timed = time_steps(full, repeated(probe, state.progress.step))
            state.progress.timed_full_ms += [scale * ms for ms in timed]

    def _say_plan(self, seconds: float) -> None:
        state, policy = self._state, self._state.policy
        if self._shape is None:
            return
        expected = forecast(self._shape, state, policy.selects, policy.needs_scores, seconds)
        if state.deadline is not None:
            expected.require_enough()
        for line in expected.lines():
            LOG.info(line)
