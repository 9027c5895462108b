"""The activation cache in a run: a pass over the images writes it, the steps of the interval read it."""

from typing import Any, Optional

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elastictrainer.errors import RunError
from elastictrainer.reuse.activation_cache import ActivationCache
from elastictrainer.reuse.cache_storage import CacheError
from elastictrainer.reuse.forward_pass import ForwardPass
from elastictrainer.reuse.settings import ReuseSettings
from elastictrainer.reuse.split import NotCacheable
from elastictrainer.runs.log import LOG
from elastictrainer.steps.compiled import Minibatch
from elastictrainer.steps.compiled_step import CompiledSteps
from elastictrainer.steps.kinds import CACHE_WRITE
from elastictrainer.steps.snapshot import preserve_variables
from elastictrainer.training.feed import Feed
from elastictrainer.training.head_pass import HeadPass
from elastictrainer.training.state import RunState
from elastictrainer.training.stopwatch import CALIBRATION, TRACING
from elastictrainer.training.workers import Workers


class CachedStepRunner:
    """Writes the activation cache of an interval, and runs its cached steps."""

    def __init__(self, run_state: RunState, feed: Feed, steps: CompiledSteps, settings: ReuseSettings):
        """
        Args:
            run_state: of the run.
            feed: reads the data.
            steps: the run's compiled steps; model and optimizer are theirs.
            settings: of the cache.
        """
        self._run_state, self._feed, self._steps, self._settings = run_state, feed, steps, settings
        self._cache: Optional[ActivationCache] = None
        self._forward: Optional[ForwardPass] = None

    @property
    def uses_cache(self) -> bool:
        """Return whether the interval's activations are cached, so that its steps read them."""
        return self._cache is not None

    def write_cache(self, mask: NDArray[np.bool_], head: Optional[HeadPass] = None) -> None:
        """Cache the activations of the tensors that `mask` freezes, in one pass over the data.

        Args:
            mask: (N,) bool: the tensors that train in the interval.
            head: takes the features of the pass, where the model's graph shows them.

        Raises:
            NotCacheable, CacheError: why they cannot be cached; in all processes alike.
        """
        state, progress = self._run_state, self._run_state.progress
        count = self._pass(mask, head, 0, state.steps_per_epoch)
        cache = self._cache
        assert cache is not None
        state.cache_start = {
            "epoch": progress.epoch,
            "count": count,
            "mask": np.flatnonzero(mask).tolist(),
            "random": [value.tolist() for value in cache.random_start],
            "checksum": cache.checksum(),
        }
        progress.cache_bytes = max(progress.cache_bytes, cache.storage.bytes)
        LOG.info(
            f"cached activations: {100 * cache.share:.0f} % of the frozen layers' work is done once, "
            f"{1e-6 * cache.storage.bytes:.0f} MB {cache.location}"
        )

    def refresh_cache(self) -> None:
        """Write the cache again, at the start of an epoch, if a variable that it depends on was changed from
        outside.

        Raises:
            NotCacheable, CacheError: they cannot be cached any more.
        """
        begun = self._run_state.cache_start
        if self._cache is None or begun is None or begun["checksum"] == self._cache.checksum():
            return
        LOG.info("writing the cache again: a frozen tensor was changed")
        mask = np.isin(np.arange(len(self._steps.objective.model.trainable_variables)), begun["mask"])
        self.end()
        self.write_cache(mask)

    def step(self) -> float:
        """Train on the next cached minibatch; returns its loss. RunError where it cannot be read."""
        assert self._cache is not None
        progress = self._run_state.progress
        try:
            values = self._cache.read(progress.epoch, progress.batch)
        except CacheError as error:
            # What was computed is gone: the run goes on from its last checkpoint.
            raise RunError(f"cached activations cannot be read: {error} Go on with --resume.") from None
        progress.cache_hits += 1
        return float(self._cache.train(values))

    def end(self) -> None:
        """Free the cache."""
        if self._cache is not None:
            self._cache.close()
        self._cache = None
        self._run_state.cache_start = None

    def resume(self) -> None:
        """Write the cache of an interrupted run again: a file of an earlier process is not trusted.

        Raises:
            NotCacheable, CacheError: there is less room, or another device, than there was.
        """
        state = self._run_state
        begun = state.cache_start
        if begun is None:
            return
        LOG.info("writing the cache again")
        mask = np.isin(np.arange(len(self._steps.objective.model.trainable_variables)), begun["mask"])
        with state.watch.lap(CALIBRATION):  # an uninterrupted run has no such work
            self._pass(mask, None, begun["epoch"], begun["count"], begun["random"])

    def _pass(
        self,
        mask: NDArray[np.bool_],
        head: Optional[HeadPass],
        epoch: int,
        count: int,
        random: Optional[Any] = None,
    ) -> int:
        """Write up to `count` minibatches to the cache; returns how many.

        Args:
            mask, head: as of `write_cache`.
            epoch: whose order the data has.
            count: minibatches.
            random: values that the random states began with; None: they go on from where they are.
        """
        failure: Optional[Exception] = None
        cached = 0
        try:
            with self._run_state.watch.lap(TRACING):
                # The graphs are built on a minibatch like those to come; the pass reads it again.
                first = next(iter(self._feed.one_pass(1)))
                cache = self._cache = self._begin(mask, first, head)
            # A resumed run draws what the interrupted one drew, then goes on with its checkpoint's states.
            with (
                self._run_state.watch.lap(CACHE_WRITE),
                preserve_variables(cache.random_states if random else []),
            ):
                for variable, value in zip(cache.random_states, random or []):
                    variable.assign(value)
                for minibatch in self._feed.one_pass(count, epoch=epoch if random is not None else None):
                    features = cache.write(minibatch)
                    if head is not None and features is not None:
                        head.add(features, minibatch)
                    cached += 1
        except (NotCacheable, CacheError) as error:
            failure = error
        failure = agreed(failure, self._run_state.workers)
        if failure is not None:
            raise failure
        return cached

    def _begin(
        self, mask: NDArray[np.bool_], minibatch: Minibatch, head: Optional[HeadPass]
    ) -> ActivationCache:
        state, steps = self._run_state, self._steps
        if self._forward is None:
            self._forward = ForwardPass(steps.objective, steps.optimizer, minibatch, steps.full_if_compiled())
        features = self._forward.features(head.head.kernel) if head else None
        profile = None if state.policy is None else state.policy.profile
        capacity = len(tf.nest.flatten(minibatch[0])[0]) * state.steps_per_epoch
        return ActivationCache(
            steps.make(mask),
            minibatch,
            self._feed.spec,
            capacity,
            self._settings,
            self._forward,
            profile,
            features,
        )


def agreed(failure: Optional[Exception], workers: Optional[Workers]) -> Optional[Exception]:
    """Return `failure`, or that of another process where this one has none: they give up together."""
    failed = workers.gather([failure is not None])[:, 0] if workers else np.zeros(1)
    if failed.any() and failure is None:
        return CacheError(f"process {int(failed.argmax())} cannot")
    return failure
