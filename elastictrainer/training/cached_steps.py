"""The activation cache in a run: a pass over the images writes it, the steps of the interval read it."""

from typing import Iterable, Optional

import numpy as np
from numpy.typing import NDArray

from elastictrainer.cache.activation_cache import ActivationCache
from elastictrainer.cache.forward_pass import ForwardPass
from elastictrainer.cache.settings import CacheSettings
from elastictrainer.cache.storage import CacheError
from elastictrainer.errors import RunError
from elastictrainer.runs.log import LOG
from elastictrainer.steps.compiled_step import CompiledSteps
from elastictrainer.steps.keras_compat.variables import name_of
from elastictrainer.steps.objective import Minibatch, examples_in
from elastictrainer.steps.snapshot import preserve_variables
from elastictrainer.steps.timing import CACHE_WRITE
from elastictrainer.training.clock import CALIBRATION, TRACING
from elastictrainer.training.feed import Feed
from elastictrainer.training.head import HeadPass
from elastictrainer.training.state import RunState, Values


class CachedSteps:
    """Writes the activation cache of an interval, and runs its cached steps."""

    def __init__(self, run_state: RunState, feed: Feed, steps: CompiledSteps, settings: CacheSettings):
        self._state, self._feed, self._steps, self._settings = run_state, feed, steps, settings
        self._cache: Optional[ActivationCache] = None
        self.unread = False  # the next step is the first one of its cache, which runs a new graph
        self._forward: Optional[ForwardPass] = None

    @property
    def uses_cache(self) -> bool:
        """Return whether the interval's activations are cached, so that its steps read them."""
        return self._cache is not None

    def write_cache(self, mask: NDArray[np.bool_], head_pass: Optional[HeadPass] = None) -> None:
        """Cache the activations of the tensors that `mask` (N,) bool freezes, in one pass over the data.

        `head_pass` takes its features, where the model's graph shows them. CacheError says why they cannot be
        cached.
        """
        state, progress = self._state, self._state.progress
        with state.clock.watch.lap(TRACING):
            cache = self._make(mask, head_pass)
        with state.clock.watch.lap(CACHE_WRITE):
            minibatches = self._feed.one_pass(state.clock.steps_per_epoch, head_pass=head_pass)
            self._fill(cache, minibatches, head_pass)
        progress.cache_origin = {
            "epoch": progress.epoch,
            "count": len(cache.storage.ends),
            "random": [value.tolist() for value in cache.random_start],
            "checksum": cache.checksum(),
        }
        progress.cache_bytes = max(progress.cache_bytes, cache.storage.bytes)
        LOG.info(
            f"cached activations: {100 * cache.share:.0f} % of the frozen layers' work is done once, "
            f"{1e-6 * cache.storage.bytes:.0f} MB {cache.storage.location}"
        )

    def renew(self) -> None:
        """Write the interval's cache again where it is missing, or no longer what steps would compute.

        CacheError where it cannot be written any more: there is less room, or another device, than there was.
        """
        origin, mask = self._state.progress.cache_origin, self._state.selector.mask
        # Everything trains where an interrupted run had time for the head alone, and this one selects.
        if origin is None or (self._cache is None and mask.all()):
            return
        if self._cache is None:
            LOG.info("writing the cache again")
            self._rewrite(origin, mask)
        elif origin["checksum"] != self._cache.checksum():
            LOG.info("writing the cache again: a frozen tensor was changed")
            self.free_cache()
            self.write_cache(mask)

    def _rewrite(self, origin: Values, mask: NDArray[np.bool_]) -> None:
        """Write the cache of an interrupted run as it was: a file of an earlier process is not trusted."""
        # An uninterrupted run has no such work: no lap of training counts it.
        with self._state.clock.watch.lap(CALIBRATION):
            cache = self._make(mask)
            # It draws what the interrupted run drew; the run goes on with its checkpoint's states.
            with preserve_variables(cache.random_states):
                for variable, value in zip(cache.random_states, origin["random"]):
                    variable.assign(value)
                self._fill(cache, self._feed.one_pass(origin["count"], origin["epoch"]))
        origin["checksum"] = cache.checksum()  # another one where other tensors train by now

    def step(self) -> float:
        """Train on the next cached minibatch; returns its loss. RunError where it cannot be read."""
        assert self._cache is not None
        progress = self._state.progress
        try:
            values = self._cache.read(progress.epoch, progress.batch)
        except CacheError as error:
            # What was computed is gone: the run goes on from its last checkpoint.
            raise RunError(f"cached activations cannot be read: {error} Go on with --resume.") from None
        progress.cache_hits += 1
        self.unread = False
        return float(self._cache.train(values))

    def free_cache(self) -> None:
        if self._cache is not None:
            self._cache.close()
        self._cache = None
        self._state.progress.cache_origin = None

    def _make(self, mask: NDArray[np.bool_], head_pass: Optional[HeadPass] = None) -> ActivationCache:
        """Make an empty cache; its graphs are built on a minibatch like those to come."""
        state, steps = self._state, self._steps
        minibatch = next(iter(self._feed.one_pass(1)))  # the pass that fills the cache reads it again
        if self._forward is None:
            self._forward = ForwardPass(steps.objective, steps.optimizer, minibatch, steps.full_if_compiled())
            if self._forward.changing:
                first = name_of(self._forward.changing[0])
                LOG.info(
                    f"note: steps change {first}, so what is computed from it is not cached. Batch "
                    "normalisation that is called with training=False, or frozen, keeps its statistics"
                )
        self._cache = ActivationCache(
            steps.make(mask),
            minibatch,
            self._feed.spec,
            examples_in(minibatch) * state.clock.steps_per_epoch,
            self._settings,
            self._forward,
            state.selector.profile,
            self._forward.features(head_pass.head.kernel) if head_pass else None,
        )
        self.unread = True
        return self._cache

    def _fill(
        self, cache: ActivationCache, minibatches: Iterable[Minibatch], head_pass: Optional[HeadPass] = None
    ) -> None:
        """Write minibatches to the cache, and give their features to `head_pass`."""
        for minibatch in minibatches:
            features = cache.write(minibatch)
            if head_pass is not None and features is not None:
                head_pass.add(features, minibatch)
        self._feed.close()  # images are not read while steps read the cache
