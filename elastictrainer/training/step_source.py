"""The next minibatch of a run, read from the data or from the cache, with the step that trains on it."""

from dataclasses import dataclass
from typing import Any, Callable

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elastictrainer.steps.compiled_step import CompiledSteps
from elastictrainer.steps.timing import CACHE_READ
from elastictrainer.training.cached_steps import CachedStepRunner
from elastictrainer.training.feed import Feed
from elastictrainer.training.state import RunState
from elastictrainer.training.stopwatch import FULL_TRACING, HEAD, LOOP, STEPS, TRACING


@dataclass(frozen=True)
class NextStep:
    """A minibatch to train on.

    Attributes:
        cached: whether it begins with cached activations.
        lap: of the stopwatch, for the step.
        train: trains on it; returns the loss.
        timed: whether the step takes what others like it take. Not so the first one of a graph, and that
            of an epoch's smaller last minibatch.
    """

    cached: bool
    lap: str
    train: Callable[[], float]
    timed: bool


class StepSource:
    """Gives the minibatches of a run; cached ones take the place of those in the data."""

    def __init__(self, run_state: RunState, feed: Feed, cached_steps: CachedStepRunner, steps: CompiledSteps):
        """
        Args:
            run_state: of the run.
            feed: reads the data.
            cached_steps: reads the cache, if there is one.
            steps: the run's compiled steps.
        """
        self._state, self._feed, self._cached_steps, self._steps = run_state, feed, cached_steps, steps

    def next(self, mask: NDArray[np.bool_]) -> NextStep:
        """Return the next minibatch; the tensors of `mask`, (N,) bool, train on it.

        Where the head is solved and nothing trains, its step gives the loss and the metrics alone.

        Raises:
            StopIteration: the data has ended.
            UsageError, DataError: see `Feed.fetch`.
        """
        first = not self._state.progress.batch  # of the epoch
        if self._cached_steps.uses_cache:
            self._feed.stop_prefetch()
            new = self._cached_steps.unread
            # An epoch's first one finds cold caches.
            timed = not (first or new)
            return NextStep(True, TRACING if new else CACHE_READ, self._cached_steps.step, timed)
        watch = self._state.watch
        with watch.lap(LOOP if first else STEPS):  # an epoch's first wait is not a part of its steps
            minibatch = self._feed.fetch()
        if self._state.head_alone:
            return NextStep(False, HEAD, lambda: self._evaluate(*minibatch), timed=False)
        tracing = FULL_TRACING if mask.all() else TRACING
        new, step = not self._steps.has(mask), self._steps.get(mask)
        if new:
            with watch.lap(tracing):
                step.trace(*self._feed.spec)
        full = self._feed.is_whole(minibatch)
        if full:
            self._feed.remember(minibatch)

        def train() -> float:
            return float(step(*minibatch))

        return NextStep(False, tracing if new else STEPS, train, timed=full and not new)

    def _evaluate(self, x: Any, y: Any) -> float:
        """Return the loss of a minibatch that nothing is trained on; the metrics take it in."""
        objective, metrics = self._steps.objective, self._steps.metrics

        @tf.function  # without a graph Keras 3 would hold the outputs of all layers
        def loss_of(x: Any, y: Any) -> tf.Tensor:
            outputs, loss = objective(x, y, training=False)
            for metric in metrics:
                metric.update_state(y, outputs)
            return loss

        return float(loss_of(x, y))
