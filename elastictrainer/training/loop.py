"""The training loop: epochs and steps, with Keras' callbacks, its logs and its validation."""

import contextlib
from typing import Any, List, NamedTuple, Optional, Sequence

import numpy as np
import tensorflow as tf

from elastictrainer.errors import UsageError
from elastictrainer.runs.log import LOG
from elastictrainer.steps.compiled_step import CompiledStep
from elastictrainer.steps.keras_compat.fitting import compilation, initial_epoch
from elastictrainer.steps.objective import KerasObjective
from elastictrainer.steps.timing import CACHE_READ, time_steps
from elastictrainer.training import clock as laps
from elastictrainer.training.cached_steps import CachedSteps
from elastictrainer.training.feed import Feed
from elastictrainer.training.graphs import Graphs
from elastictrainer.training.head import HeadPass
from elastictrainer.training.memory import MemoryLimit
from elastictrainer.training.stages import Stages
from elastictrainer.training.state import RunState, Values

_TWO_FITS = "call Trainer.fit twice, and between the two change the model and compile it."


class _Done(NamedTuple):
    """A step that was made: its loss, the ms it took, the lap of these, and whether they are typical."""

    loss: float
    ms: float
    lap: str
    timed: bool


class Loop:
    """Trains a run epoch after epoch, from wherever it stands.

    Keras' own loop cannot: it asks the data for every minibatch, although cached ones take their place; it
    ends after a number of epochs, not by a clock; and it cannot begin in the middle of an epoch.

    Attributes:
        cache: writes and reads the activation cache, where the run has one.
    """

    def __init__(
        self,
        run_state: RunState,
        feed: Feed,
        graphs: Graphs,
        cache: CachedSteps,
        stages: Stages,
        limit: Optional[MemoryLimit],
    ):
        """Take the parts of a run; full steps are timed on smaller minibatches within a `limit` of memory."""
        self._state, self._feed, self._graphs, self._steps = run_state, feed, graphs, graphs.steps
        self.cache, self._stages, self._limit = cache, stages, limit
        self._compilation = compilation(run_state.model)
        self._trainable = self._trainable_now()

    def run(
        self, given: Values, callbacks: Sequence[tf.keras.callbacks.Callback]
    ) -> tf.keras.callbacks.History:
        """Train to the end of the run; returns Keras' History of its epochs.

        Args:
            given: arguments of Keras' `fit` by name.
            callbacks: all of them.

        Raises:
            UsageError: a callback changed the model in a way that needs another run.
            DataError: the data cannot be read.
        """
        state, model = self._state, self._state.model
        verbose = given.get("verbose", 1)
        keras_callbacks = tf.keras.callbacks.CallbackList(
            list(callbacks),
            add_history=True,
            add_progbar=verbose != 0,
            model=model,
            verbose=1 if verbose == "auto" else verbose,
            epochs=given["epochs"],
            steps=state.clock.steps_per_epoch,
        )
        keras_callbacks.on_train_begin()
        # BackupAndRestore puts a model back to a later epoch.
        first = initial_epoch(model, self._feed.first_epoch, state.clock.steps_per_epoch)
        state.clock.epochs -= first - self._feed.first_epoch
        self._feed.first_epoch = first
        if not state.progress.step:
            self.time_full_steps()
            self._stages.start()
        else:
            self._stages.resume()
        logs: Values = {}
        while not self._over():
            logs = self._epoch(first + state.progress.epoch, given, keras_callbacks) or logs
        keras_callbacks.on_train_end(logs)
        return model.history

    def _over(self) -> bool:
        clock, progress = self._state.clock, self._state.progress
        if progress.batch:  # an epoch was interrupted
            return False
        return self._state.model.stop_training or (not clock.by_clock and progress.epoch >= clock.epochs)

    def _epoch(self, epoch: int, given: Values, keras_callbacks: Any) -> Values:
        """Make the steps of an epoch, or those that are left of it; returns its logs, none without a step."""
        state, model = self._state, self._state.model
        if not state.progress.batch:
            model.reset_metrics()
        # Meters see the steps alone; evaluation and an epoch's last callbacks come after `on_steps_end`.
        with state.clock.watch.lap(laps.LOOP):
            state.tell("on_steps_begin")
            keras_callbacks.on_epoch_begin(epoch)
            while state.progress.batch < state.clock.steps_per_epoch and not model.stop_training:
                batch = state.progress.batch
                keras_callbacks.on_train_batch_begin(batch)
                try:
                    results = self._step()
                except StopIteration:
                    LOG.info(
                        f"the data has ended after {batch} of {state.clock.steps_per_epoch} minibatches of "
                        "an epoch: training ends. Make it give more (repeat), or pass a lower "
                        "steps_per_epoch."
                    )
                    model.stop_training = True
                    break
                keras_callbacks.on_train_batch_end(batch, results)
            self._feed.end_epoch()
        state.tell("on_steps_end")
        if not state.progress.batch:  # the data ended with the epoch before: this one is none
            return {}
        results = {name: np.asarray(value) for name, value in model.get_metrics_result().items()}
        logs: Values = {name: value if value.ndim else value.item() for name, value in results.items()}
        logs.update(self._validated(epoch, given, keras_callbacks))
        logs.update(state.tell("evaluate", state.progress.epoch + 1))
        keras_callbacks.on_epoch_end(epoch, logs)
        # Keras' callbacks see what `Model.fit` would give them; its History has more.
        ratio, history = state.ratio(state.epoch_step_ms()), model.history.history
        history.setdefault("ratio", []).append(np.nan if ratio is None else ratio)
        history.setdefault("selected", []).append(int(state.selector.mask.sum()))
        state.progress.epoch_done(state.clock.watch.training())
        state.tell("on_epoch_done")
        return logs

    def _step(self) -> Values:
        """Train on the next minibatch; returns the metrics of the epoch so far, by name.

        Raises:
            StopIteration: the data has ended.
            UsageError: a callback has changed what can be trained.
        """
        state, progress = self._state, self._state.progress
        if compilation(state.model) is not self._compilation:
            raise UsageError(f"a callback compiled the model during training: {_TWO_FITS}")
        if not progress.batch and self._trainable_now() != self._trainable:  # asking takes time
            raise UsageError(f"a callback froze or unfroze a layer during training: {_TWO_FITS}")
        self._stages.before_step()
        state.set_rate()
        if not progress.step:
            state.clock.began_s = state.clock.spent_s()
        head_pass = self._stages.head_alone
        if head_pass:
            done = self._solved_step(head_pass)
        else:
            done = self._cached_step() if self.cache.uses_cache else self._whole_step()
        forecast = self._stages.forecast()
        progress.predicted_ratio += forecast.ratio
        progress.flops += forecast.flops
        if done.timed:
            progress.step_took(state.clock.counted_ms(done.ms, done.lap, forecast.of))
        progress.step_done(done.loss)
        state.loss, state.step_ms = done.loss, done.ms
        recent_ms = progress.recent_ms[-50:]
        step_s = 1e-3 * float(np.median(recent_ms)) if recent_ms else 0.0
        if head_pass or state.clock.ends(progress.step, step_s):
            state.model.stop_training = True
        return self._graphs.count_step()

    def _solved_step(self, head_pass: HeadPass) -> _Done:
        """Take note of the solved head, where nothing else trains."""
        loss = self._state.progress.start_loss
        assert loss is not None
        for metric in self._steps.metrics:  # of some of the images that it was solved on
            metric.update_state(*head_pass.latest)
        return _Done(loss, 0.0, laps.HEAD, False)

    def _cached_step(self) -> _Done:
        """Train on the next minibatch of the cache."""
        watch, first = self._state.clock.watch, not self._state.progress.batch
        # An epoch's first step finds cold caches, and the first of a cache runs a new graph.
        lap, timed = (laps.TRACING, False) if self.cache.unread else (CACHE_READ, not first)
        start = watch.clock()
        with watch.lap(lap):
            loss = self.cache.step()
        return _Done(loss, 1e3 * (watch.clock() - start), lap, timed)

    def _whole_step(self) -> _Done:
        """Do all work of a step on the next minibatch of the data; StopIteration where that has ended."""
        watch, mask = self._state.clock.watch, self._state.selector.mask
        first, start = not self._state.progress.batch, watch.clock()
        with watch.lap(laps.LOOP if first else laps.STEPS):  # the first wait is no part of a step
            minibatch = self._feed.fetch()
        start = watch.clock() if first else start
        tracing = laps.FULL_TRACING if mask.all() else laps.TRACING
        new, step = not self._steps.has(mask), self._steps.get(mask)
        if new:
            with watch.lap(tracing):
                step.trace(*self._feed.spec)
        whole = self._feed.is_whole(minibatch)
        if whole:
            self._feed.remember(minibatch)
        # The first run of a graph, and a smaller last minibatch, say nothing about the others' time.
        lap, timed = (tracing, False) if new else (laps.STEPS, whole)
        with watch.lap(lap):
            loss = float(step(*minibatch))
        if not np.isfinite(loss):
            self._feed.suspect(minibatch)
        return _Done(loss, 1e3 * (watch.clock() - start), lap, timed)

    def time_full_steps(self, again: bool = False) -> None:
        """Time full steps for a scheme that leaves tensors out, and leave no trace of them.

        Where their time decides how long the run may take, it is a part of the run. Where the head trains
        alone, or they would take too much memory, their time is the profile's. `again`: although some were
        timed.
        """
        state, model, selector, limit = self._state, self._state.model, self._state.selector, self._limit
        trains_all = not selector.selects and selector.mask.all()
        if trains_all or state.clock.deadline is not None or (state.progress.timed_full_ms and not again):
            return
        if not self._stages.scheme.trains or (limit is not None and not limit.times_full_steps):
            if selector.profile is not None:
                state.progress.timed_full_ms.append(selector.profile.full_ms)
            return
        watch, variables = state.clock.watch, model.trainable_variables
        with contextlib.ExitStack() as stack:
            if not selector.selects:
                stack.enter_context(watch.lap(laps.CALIBRATION))
                objective = KerasObjective(model, fold=self._steps.objective.fold)
                full = CompiledStep(objective, model.optimizer, variables, self._steps.metrics)
            else:
                full = self._steps.get(np.ones(len(variables), bool))
                if limit is None:
                    with watch.lap(laps.FULL_TRACING):
                        full.trace(*self._feed.spec)
                stack.enter_context(watch.lap(laps.TIMING))
            # Within a limit of memory full steps take fewer examples, and the profile scales their time up.
            scale = 1.0 if limit is None else limit.scale
            timed = time_steps(full, self._feed.endless_probe(state.progress.step))
            state.progress.timed_full_ms += [scale * ms for ms in timed]

    def _trainable_now(self) -> List[int]:
        return [id(v) for v in self._state.model.trainable_variables]

    def _validated(self, epoch: int, given: Values, keras_callbacks: Any) -> Values:
        """Return the entries of validation for an epoch's logs, where `fit` was asked for it."""
        data, every = given.get("validation_data"), given.get("validation_freq") or 1
        due = (epoch + 1) % every == 0 if isinstance(every, int) else epoch + 1 in every
        if data is None or not due:
            return {}
        x, y, weights = tf.keras.utils.unpack_x_y_sample_weight(data)
        size = given.get("validation_batch_size") or given.get("batch_size")
        options = {"sample_weight": weights, "batch_size": size, "steps": given.get("validation_steps")}
        with self._state.clock.watch.lap(laps.VALIDATION):
            results = self._state.model.evaluate(
                x, y, **options, callbacks=keras_callbacks, verbose=0, return_dict=True
            )
        return {f"val_{name}": value for name, value in results.items()}
