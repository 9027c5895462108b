"""The training loop: epochs, intervals and steps, with Keras' callbacks, its logs and its validation."""

import contextlib
import dataclasses
from typing import Any, Callable, List, NamedTuple, Optional, Sequence

import numpy as np
import tensorflow as tf

from elastictrainer.cache.storage import CacheError
from elastictrainer.errors import NotFinite, UsageError
from elastictrainer.runs.log import LOG
from elastictrainer.steps import optimizers
from elastictrainer.steps.compiled_step import CompiledStep
from elastictrainer.steps.keras_compat.fitting import compilation, initial_epoch
from elastictrainer.steps.objective import KerasObjective
from elastictrainer.steps.tensor_kinds import head_mask
from elastictrainer.steps.timing import CACHE_READ, time_steps
from elastictrainer.training import clock as laps
from elastictrainer.training.cached_steps import CachedSteps
from elastictrainer.training.feed import Feed
from elastictrainer.training.graphs import Graphs
from elastictrainer.training.head import HeadPass
from elastictrainer.training.memory import MemoryLimit
from elastictrainer.training.planner import Planner, Stage
from elastictrainer.training.state import RunState, Values

# With MobileNetV2, building the graphs of the first interval takes at most this share of what scoring
# takes with its graphs.
_LIKE_SCORING = 0.4
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
        planner: Planner,
        feed: Feed,
        graphs: Graphs,
        cache: CachedSteps,
        head: Optional[HeadPass],
        limit: Optional[MemoryLimit],
        opening: int,
    ):
        """Take the parts of a run, whose selector is made.

        Args:
            planner: knows what the run has to do, not yet how it stands.
            head: solves the head before the first interval; None: it stays.
            limit: of memory; None: any. Full steps are timed on smaller minibatches within it.
            opening: steps before the first selection.
        """
        self._state, self._initial_planner, self._feed, self._graphs = run_state, planner, feed, graphs
        self._steps, self.cache, self._head, self._limit = graphs.steps, cache, head, limit
        self._opening = opening
        self._compilation = compilation(run_state.model)
        self._trainable = self._trainable_now()
        # Of the latest steps, which are all cached or none is, and which train the same tensors:
        self._alike: Any = None  # whether they are cached, and mask
        self._ratio, self._flops = 0.0, 0.0  # what the profile says: time over a full step's, operations

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
            self._start()
        else:
            if state.clock.deadline and state.clock.deadline.more_s:
                self._plan()
            if state.clock.stage_begun or state.progress.batch:  # an interval to come writes its own cache
                self._go_on()
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
        self._begin_or_go_on()
        self._set_rate()
        if not progress.step:
            state.clock.began_s = state.clock.spent_s()
        if self._head_alone:
            done = self._solved_step()
        else:
            done = self._cached_step() if self.cache.uses_cache else self._whole_step()
        self._predict()
        progress.predicted_ratio += self._ratio
        progress.flops += self._flops
        if done.timed:
            progress.step_took(state.clock.counted_ms(done.ms, done.lap, self._alike))
        progress.step_done(done.loss)
        state.loss, state.step_ms = done.loss, done.ms
        recent_ms = progress.recent_ms[-50:]
        step_s = 1e-3 * float(np.median(recent_ms)) if recent_ms else 0.0
        if self._head_alone or state.clock.ends(progress.step, step_s):
            state.model.stop_training = True
        return self._graphs.count_step()

    def _solved_step(self) -> _Done:
        """Take note of the solved head, where nothing else trains."""
        loss = self._state.progress.start_loss
        assert self._head is not None and loss is not None
        for metric in self._steps.metrics:  # of some of the images that it was solved on
            metric.update_state(*self._head.latest)
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

    def _begin_or_go_on(self) -> None:
        """Begin an interval, or go on with one, if it is time to.

        Intervals begin between epochs, but for the first, which follows the opening steps at once.
        """
        state, progress, opening = self._state, self._state.progress, self._opening
        if progress.step < opening or (progress.batch and progress.step != opening):
            return
        clock = state.clock
        if clock.stage and clock.stage_begun and clock.stage.is_over(progress.epoch, clock.spent_s()):
            self._plan()
        if clock.stage and not clock.stage_begun:
            self._set_rate()  # tensors are scored with it; that of a run with more time was zero
            self._begin(clock.stage)
        elif not progress.batch:
            self._go_on()

    def _begin(self, stage: Stage) -> None:
        """Begin a stage: score and select tensors, write the cache, solve the head. Or solve that alone."""
        state, selector = self._state, self._state.selector
        head = None if selector.interval else self._head
        self.cache.free_cache()
        if stage.trains:
            self._select(stage, head)
        solved: Values = {}
        if head:
            with state.clock.watch.lap(laps.HEAD):
                solved = head.finish()
            state.progress.start_loss = solved["loss"]
            self._predict()
            if stage.trains and not self._planner().goes_on(self._ratio, self.cache.uses_cache):
                LOG.info("there is no time to train layers: the solved head stays")
                self.cache.free_cache()
                stage = dataclasses.replace(stage, trains=False)
                self._take(stage)
        if stage.trains:
            selector.settle(state.progress.step)
        state.clock.stage_begun = True
        if head:
            self._begin_with_head(stage, solved)

    def _select(self, stage: Stage, head: Optional[HeadPass]) -> None:
        """Score and select the tensors of an interval, and write its cache; `head` takes the features."""
        state, selector, watch = self._state, self._state.selector, self._state.clock.watch
        planner = self._initial_planner
        if head and planner.scheme.needs_scores and stage.scoring:
            with watch.lap(laps.HEAD):
                head.solve_on_sample()
        with watch.lap(laps.IMPORTANCE):
            try:
                selector.score(not stage.scoring)
            except NotFinite as error:
                raise state.diverged(str(error).partition(". ")[0]) from None
        share = self._step_share(stage, planner.cached)  # now, for scoring has taken time
        with watch.lap(laps.SELECTION):
            mask = selector.begin(share, planner.cached)
        if planner.cached and not mask.all():
            cached = self._try_to_cache(lambda: self.cache.write_cache(mask, head))
            if head and not cached:
                head.clear()

    def _begin_with_head(self, stage: Stage, solved: Values) -> None:
        """Tell the callbacks of the solved head, and train layers after all where it has left time for that.

        The features of the whole pass have given the head its weights only now: a cache written before holds
        others where the selection leaves the head out.
        """
        state, clock = self._state, self._state.clock
        state.tell("on_head", {**solved, **state.tell("evaluate", 0)})
        self._go_on()
        # What was expected of an image may have been too much.
        clock.image_s = clock.image_s and min(clock.image_s, solved["seconds"] / solved["images"])
        planner = self._planner()
        if planner.scheme.trains and not stage.trains and planner.goes_on(0.0, True, again=True):
            LOG.info("there is time left: layers train as well")
            self._initial_planner, self._head = dataclasses.replace(self._initial_planner, head=None), None
            self._plan()
            self._begin_or_go_on()

    def _go_on(self) -> None:
        """Go on with an interval, whose cache is written again where it has to be."""
        if not self._try_to_cache(self.cache.go_on):
            self._state.selector.settle(self._state.progress.step, again=True)

    def _try_to_cache(self, write: Callable[[], None]) -> bool:
        """Write a cache; where that cannot be, select for steps that do all work, and return False."""
        try:
            write()
        except CacheError as error:  # such as less room, or another device, than there was
            self.cache.free_cache()
            LOG.info(f"not cached: {error}")
            stage = self._state.clock.stage
            assert stage is not None
            with self._state.clock.watch.lap(laps.SELECTION):
                self._state.selector.select(self._step_share(stage, False), False)
            return False
        return True

    def _step_share(self, stage: Stage, cached: bool) -> float:
        """Return the time that a step of the interval may take, over a full step's."""
        watch, planner = self._state.clock.watch, self._planner()
        scoring_s = _LIKE_SCORING * watch.of(laps.IMPORTANCE, laps.FULL_TRACING)
        graphs_s = watch.of(laps.TRACING) / planner.intervals if planner.intervals else scoring_s
        return planner.step_share(stage, cached, graphs_s)

    def _planner(self) -> Planner:
        """Return the planner of the run as it stands."""
        state, clock = self._state, self._state.clock
        return dataclasses.replace(
            self._initial_planner,
            epochs=clock.epochs,
            intervals=state.selector.interval,
            epoch=state.progress.epoch,
            spent_s=clock.spent_s(),
            end_s=clock.end_s,
            ending_s=clock.ending_s,
            full_ms=state.full_step_ms(),
            image_s=clock.image_s,
        )

    def _start(self) -> None:
        """Plan a run from its beginning, set its budget where that is a share of full training's time, and
        say how its time is divided.
        """
        state, clock, planner = self._state, self._state.clock, self._initial_planner
        self.time_full_steps()
        if planner.ends_by == "share":
            steps_s = 1e-3 * (state.full_step_ms() or 0.0) * clock.epochs * clock.steps_per_epoch
            clock.budget_s = planner.rho * (steps_s + state.compiling_s())
        self._plan()
        if clock.by_clock and clock.stage:
            for line in self._planner().lines(clock.stage):
                LOG.info(line)

    def _plan(self) -> None:
        """Plan what comes next; what goes on stays where that is nothing."""
        clock, stage = self._state.clock, self._planner().next_stage()
        if stage is None:
            return
        if stage.note and (clock.stage is None or stage.note != clock.stage.note):
            LOG.info(stage.note)
        self._take(stage)
        clock.stage_begun = False

    def _take(self, stage: Stage) -> None:
        self._state.clock.stage = stage
        if not stage.trains:
            self._state.selector.mask = head_mask(self._state.model)

    @property
    def _head_alone(self) -> bool:
        """Return whether the head is solved, and no step follows."""
        stage = self._state.clock.stage
        return stage is not None and not stage.trains

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
        if not self._initial_planner.scheme.trains or (limit is not None and not limit.times_full_steps):
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

    def _set_rate(self) -> None:
        state = self._state
        if state.rates is not None:
            rate = state.rates.rate(state.clock.share(state.progress.step))
            optimizers.set_rate(state.model.optimizer, rate)

    def _trainable_now(self) -> List[int]:
        return [id(v) for v in self._state.model.trainable_variables]

    def _predict(self) -> None:
        """Set what the profile says of a step, where that has changed."""
        selector, cached = self._state.selector, self.cache.uses_cache
        alike = cached, selector.mask.tobytes()
        if alike != self._alike:
            self._alike = alike
            if selector.profile is not None:
                profile = selector.profile.with_cache if cached else selector.profile
                self._ratio = profile.step_time(selector.mask) / profile.full_ms
                self._flops = profile.step_flops(selector.mask) or 0.0

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
