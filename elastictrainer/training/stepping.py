"""One training step of a run: its interval, its rate, its minibatch, its time."""

from collections import deque
from typing import Any, Deque, Dict, Tuple

import numpy as np
from numpy.typing import NDArray

from elastictrainer.errors import UsageError
from elastictrainer.steps import optimizers
from elastictrainer.training.pace import Pace
from elastictrainer.training.prepared import Prepared
from elastictrainer.training.state import RunState
from elastictrainer.training.stopwatch import SUSPENDED

# A step that takes longer than so many times the median of the latest ones was not training all the time.
_ASLEEP_AFTER, _LATEST = 10, 100
_KNOWN = 20  # steps whose median is worth something

TWO_FITS = "call Trainer.fit twice, and between the two change the model and compile it."


class Stepping:
    """Takes the steps of a run, and accounts for them."""

    def __init__(self, run_state: RunState, prepared: Prepared):
        """`prepared`: what `run_state` trains with."""
        self._state, self._prepared = run_state, prepared
        self._trainable = self._trainable_now()
        self._pace = Pace()
        # Of the latest steps, which are all cached or none is, and which train the same tensors:
        self._alike: Tuple[bool, bytes] = (False, b"")  # whether they are cached, and mask
        self._ratio, self._flops = 0.0, 0.0  # what the profile says: time over a full step's, operations
        self._ms: Deque[float] = deque(maxlen=_LATEST)  # times of those that were timed

    def step(self) -> Dict[str, Any]:
        """Train on the next minibatch; returns the metrics of the epoch so far, by name.

        Raises:
            StopIteration: the data has ended.
            UsageError: a callback has changed what can be trained.
        """
        state, progress = self._state, self._state.progress
        self._begin()
        self._set_rate()
        mask = state.policy.mask
        start = state.watch.clock()
        batch = self._prepared.source.next(mask)
        if not progress.batch:
            start = state.watch.clock()  # an epoch's first wait is not a part of its steps
        with state.watch.lap(batch.lap):
            loss = batch.train()
        ms = 1e3 * (state.watch.clock() - start)
        self._add_prediction(batch.cached, mask)
        # The first run of a graph, and a smaller last minibatch, say nothing about the others' time.
        if batch.timed:
            awake_ms = self._while_awake(ms, batch.lap)
            progress.step_took(awake_ms)
            self._follow_pace(awake_ms)
        progress.step_done(loss)
        state.loss, state.step_ms = loss, ms
        if state.head_alone or (state.by_clock and state.ends()):
            state.model.stop_training = True
        results: Dict[str, Any] = self._prepared.graphs.count_step()
        return results

    def _begin(self) -> None:
        """Begin an interval, or go on with it, if it is time to."""
        state, progress, policy = self._state, self._state.progress, self._state.policy
        if not progress.batch and self._trainable_now() != self._trainable:  # asking takes time
            raise UsageError(f"a callback froze or unfroze a layer during training: {TWO_FITS}")
        opening = self._prepared.opening
        # Intervals begin between epochs, but for the first, which follows the opening steps at once.
        if progress.step >= opening and (not progress.batch or progress.step == opening):
            if policy.plan.due(policy.interval, state.used_share()):
                self._set_rate()  # tensors are scored with it; that of a run with more time was zero
                self._prepared.intervals.begin()
            elif not progress.batch:
                self._prepared.intervals.go_on()
        if not progress.step:
            state.budget.began_s = state.spent_s()

    def _set_rate(self) -> None:
        state = self._state
        if state.rates is not None:
            optimizers.set_rate(state.model.optimizer, state.rates.rate(state.used_share()))

    def _trainable_now(self) -> Any:
        return [id(v) for v in self._state.model.trainable_variables]

    def _while_awake(self, ms: float, lap: str) -> float:
        """Return the duration of a step, or the median where it took far longer: then the machine slept."""
        state = self._state
        usual_ms = float(np.median(self._ms)) if len(self._ms) >= _KNOWN else np.inf
        self._ms.append(ms)  # as it is: a device that stays slow is soon believed
        if ms <= _ASLEEP_AFTER * usual_ms:
            return ms
        # A machine that slept must not lose its budget: the surplus is neither training nor time used.
        lost_s = 1e-3 * (ms - usual_ms)
        state.watch.move(lost_s, lap, SUSPENDED)
        if state.deadline is not None:
            state.deadline.lost_s += lost_s
        return usual_ms

    def _follow_pace(self, ms: float) -> None:
        """End earlier on a device that has become slower: its last evaluation takes longer as well."""
        deadline = self._state.deadline
        if deadline is not None and self._pace.add(ms, self._ratio or 1.0):
            deadline.slowdown = self._pace.slowdown
            self._state.follow_deadline()

    def _add_prediction(self, cached: bool, mask: NDArray[np.bool_]) -> None:
        """Add up what the profile says of a step."""
        policy, progress = self._state.policy, self._state.progress
        alike = cached, mask.tobytes()
        if alike != self._alike:
            self._alike = alike
            self._ms.clear()
            if policy.profile is not None:
                profile = policy.profile.with_cache if cached else policy.profile
                self._ratio = profile.step_time(mask) / profile.full_ms
                self._flops = profile.step_flops(mask) or 0.0
        progress.predicted_ratio += self._ratio
        progress.flops += self._flops
