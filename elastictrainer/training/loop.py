"""The loop over minibatches: what Keras' `fit` calls for each of them, and tells of its epochs."""

import contextlib
import time
from typing import Any, Callable, Dict, List, Optional, Sequence

import numpy as np
import tensorflow as tf

from elastictrainer.errors import UsageError
from elastictrainer.profiler.timings import TensorTimings
from elastictrainer.reuse.settings import ReuseSettings
from elastictrainer.selection.budget import Budget
from elastictrainer.selection.build import make_policy
from elastictrainer.selection.clock import BUILDING, FULL_TRACING, LOOP, TRACING
from elastictrainer.selection.plan import plan, require_reachable
from elastictrainer.selection.policy import FULL, PLAIN, REPLAY
from elastictrainer.selection.schemes import Scheme
from elastictrainer.selection.settings import SelectionSettings
from elastictrainer.steps import compiled, optimizers
from elastictrainer.steps.compiled_step import StepCache
from elastictrainer.steps.keras_compat import count_step
from elastictrainer.training.budgeting import Budgeting, full_epochs
from elastictrainer.training.callback import TrainerCallback
from elastictrainer.training.feed import Feed, Minibatch, Probe, Stream, unpacked
from elastictrainer.training.head_pass import HeadPass
from elastictrainer.training.intervals import Intervals
from elastictrainer.training.memory_limit import MemoryLimit
from elastictrainer.training.recorder import Recorder
from elastictrainer.training.run_profile import able_to_record, made_profile
from elastictrainer.training.state import RunState
from elastictrainer.training.stopwatch import STEPS, SUSPENDED, VALIDATION

_OPENING = 48  # full steps before the first selection where the head is not solved
_SUSPENDED = 10  # times the median: a step that takes longer was not training all the time
_KNOWN = 20  # steps whose median is worth something

_TWO_FITS = "call Trainer.fit twice, and between the two change the model and compile it."


class TrainFunction(tf.keras.callbacks.Callback):
    """Takes the steps of a run: as a model's `train_function`, which Keras calls, and its callback.

    Attributes:
        timings: the model's profile.
    """

    def __init__(
        self,
        run_state: RunState,
        scheme: Scheme,
        settings: SelectionSettings,
        timings: Optional[TensorTimings],
        probe: Optional[Probe],
        callbacks: Sequence[TrainerCallback],
        reuse: ReuseSettings,
        head: str = "keep",
        memory: Optional[float] = None,
    ):
        """
        Args:
            run_state: of the run, at its beginning; the loop moves it on.
            scheme, settings: which tensors train.
            timings: the model's profile; None: made at the first minibatch where the scheme selects.
            probe: see Trainer.
            callbacks: told of selections, of the solved head, and when training goes on.
            reuse: how frozen work is recorded.
            head, memory: see Trainer.
        """
        super().__init__()
        self.timings = timings
        self._memory = memory
        self.run_state = run_state
        self._scheme, self._settings, self._callbacks, self._reuse = scheme, settings, callbacks, reuse
        self.feed = Feed(run_state, probe, settings.importance_batches)
        self._head = head
        # Whether the run may end by the clock. Keras is then asked for more epochs than it will ever make.
        self.open_ended = run_state.deadline is not None or (
            scheme.importance_metric is not None
            and reuse.reuse != "off"
            and not settings.deterministic
            and not run_state.workers
        )
        self._first_epoch: Optional[int] = None
        self._going_on = False
        self._training = contextlib.ExitStack()  # the lap around the steps, or around Keras' validation
        self._metric_values: List[Any] = []
        self._trainable: List[int] = []  # ids of the tensors that can be trained

    # What Keras tells

    def on_train_begin(self, logs: Any = None) -> None:
        """Keras is about to train."""
        if self.params.get("steps") is None:
            raise UsageError(
                "how many minibatches make an epoch cannot be told from the data: pass steps_per_epoch."
            )
        self.run_state.steps_per_epoch = self.run_state.steps_per_epoch or self.params["steps"]

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """The steps of an epoch begin; Keras has just reset the metrics."""
        if self._first_epoch is None:
            self.start_at(epoch)
        if self._metric_values:
            for variable, value in zip(self.run_state.metric_variables(), self._metric_values):
                variable.assign(value)
            self._metric_values = []
        self._training.enter_context(self.run_state.watch.lap(LOOP))
        self._tell(True)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """UsageError where a callback has compiled the model: Keras would train it without this loop."""
        if self.run_state.model.train_function is not self:
            raise UsageError(f"a callback compiled the model during training: {_TWO_FITS}")

    def on_test_begin(self, logs: Any = None) -> None:
        """Keras' own validation begins."""
        self._end_training()
        self._training.enter_context(self.run_state.watch.lap(VALIDATION))

    def on_test_end(self, logs: Any = None) -> None:
        """Keras' own validation is over."""
        self._training.close()

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """Add this epoch's figures to its logs."""
        self._end_training()
        state = self.run_state
        if not state.model.stop_training:
            self.feed.check_end()  # Keras 3 ends an epoch where it knows that there is no more data
        assert logs is not None and state.policy is not None
        ratio = state.ratio(state.epoch_step_ms())
        logs["ratio"] = float("nan") if ratio is None else ratio
        mask = state.policy.mask
        logs["selected"] = len(state.model.trainable_variables) if mask is None else int(mask.sum())

    def __call__(self, iterator: Any) -> Dict[str, Any]:
        """Train on the next minibatch of `iterator`; returns the metrics so far."""
        if self.run_state.policy is None:
            first = self.feed.fetch(iterator)
            with self.run_state.watch.lap(BUILDING):
                self.build(first, iterator.element_spec)
            self.begin()
            self._step(lambda: first)
        else:
            self._step(lambda: self.feed.fetch(iterator))
        results: Dict[str, Any] = self._counted()
        return results

    # What Trainer.fit calls

    def start_at(self, epoch: int) -> None:
        """The run's first epoch is number `epoch` to Keras."""
        self._first_epoch = epoch
        self.run_state.epochs -= epoch

    def build_on(self, data: tf.data.Dataset) -> None:
        """`build` by the first minibatch of `data`, which must not end."""
        self.feed.endless = True
        self.build(self.feed.fetch(iter(data)), data.element_spec)

    def build(self, minibatch: Minibatch, spec: Any) -> None:
        """Make variables, profile and policy, before the first step.

        Args:
            minibatch: of a full size.
            spec: tf.TensorSpecs of any minibatch of the data.
        """
        state, model, scheme = self.run_state, self.run_state.model, self._scheme
        compiled.build(model, *minibatch)
        if not model.trainable_variables:
            raise UsageError("the model has no trainable tensor. Set `trainable = True` on a layer.")
        self._trainable = [id(v) for v in model.trainable_variables]
        optimizers.build(model.optimizer, model.trainable_variables)
        if self.feed.is_full(minibatch):
            self.feed.keep(minibatch)
        self._spec = unpacked(spec)
        self.metrics = compiled.CompiledMetrics(model)
        self._counted = tf.function(self._count_step)  # a graph takes half the time of the ops one by one
        mean = state.workers.mean if state.workers else None
        objective = compiled.CompiledObjective(model, None, scheme.penalty(model), mean)
        self._steps = StepCache(objective, model.optimizer, [self.metrics])
        selects = scheme.importance_metric is not None
        if selects and self.timings is None:
            self.timings = made_profile(state, objective, minibatch, self.metrics)
        recorded = self._reuse.reuse != "off"
        if recorded:
            recorded, self.timings = able_to_record(
                state, self.timings, objective, minibatch, self._spec, self._settings.deterministic
            )
        head = HeadPass(state, self.feed) if self._head == "solve" else None
        by_clock = self._by_clock = self.open_ended and (recorded or state.deadline is not None)
        if state.rho is not None and self.timings is not None:
            require_reachable(state.rho, self.timings, recorded)
        limit = None
        if self._memory is not None and self.timings is not None:
            limit = MemoryLimit(self._memory, self.timings, model, model.optimizer)
            self.timings, self._reuse = limit.timings, limit.reuse(self._reuse)
            for line in limit.lines():
                state.say(line)
        run_plan = plan(
            self.timings,
            state.steps_per_epoch,
            state.epochs,
            full_epochs(state, self.timings),
            recorded and selects,  # others have intervals for what they do by themselves, such as pruning
            self._settings.interval,
            by_clock,
        )
        state.budget = Budget(steps=None if by_clock else state.epochs * state.steps_per_epoch)
        state.policy = make_policy(
            scheme,
            self._settings,
            self.timings,
            run_plan,
            self._steps,
            state.watch,
            self.feed.probe if limit is None else limit.cut(self.feed.probe),
            self._note_selection,
            state.say,
            None if limit is None else limit.for_steps,
        )
        # A head that is not solved says nothing of the tensors below it: full steps come first.
        self._opening = 0
        if state.policy.scores and head is None:
            self._opening = max(1, min(_OPENING, state.steps_per_epoch // 4))
        self._recorder = Recorder(state, self.feed, self._steps, self._spec, self._reuse)
        self._intervals = Intervals(
            state, self.feed, self._recorder if recorded else None, head, self._note_head
        )
        self.budgeting = Budgeting(
            state, self.feed, self._steps, self._spec, recorded, head is not None, limit
        )

    def begin(self) -> None:
        """Set the budget of a run that is at its beginning, by full steps timed now."""
        if self._head == "solve" and not self.feed.can_pass:
            raise UsageError(
                "the head cannot be solved: the data can be read once only. Pass arrays, or a "
                "tf.data.Dataset of known length."
            )
        self.budgeting.begin(self._by_clock)

    def resume(self, stream: Stream) -> None:
        """The run's variables and state are as it goes on with them: at its beginning, or restored."""
        state = self.run_state
        first_epoch = self._first_epoch or 0
        self.feed.follow(stream, first_epoch)
        if state.progress.batch:  # Keras resets the metrics where this epoch goes on
            self._metric_values = [variable.numpy() for variable in state.metric_variables()]
        if not state.progress.step:
            self.begin()
            return
        state.follow_deadline()
        self._intervals.resume()

    def close(self) -> None:
        """Let go of what is held."""
        self._training.close()
        if self.run_state.policy is not None:
            self._recorder.end()

    # A step

    def _count_step(self) -> Dict[str, Any]:
        count_step(self.run_state.model)
        return self.metrics.results()

    def _step(self, fetch: Callable[[], Minibatch]) -> None:
        """Begin an interval if it is time to, set the rate, run a step, time it, and account for it."""
        state, progress, watch = self.run_state, self.run_state.progress, self.run_state.watch
        policy = state.policy
        assert policy is not None
        opening = progress.step < self._opening
        if not progress.batch:  # to ask in every step would take time
            self._require_the_same_tensors()
        if not opening and (not progress.batch or progress.step == self._opening):
            if policy.plan.due(policy.interval, state.share()):
                self._intervals.begin()
            elif not progress.batch:
                self._intervals.go_on()
        if not progress.step:
            state.budget.began_s = state.spent_s()
        if state.rates is not None:
            optimizers.set_rate(state.model.optimizer, state.rates.rate(state.share()))
        mask = np.ones(len(self._trainable), bool) if opening or policy.mask is None else policy.mask
        kind = REPLAY if self._recorder.replays else FULL if mask.all() else PLAIN
        new = kind != REPLAY and not self._steps.has(mask)
        lap = REPLAY if kind == REPLAY else STEPS if not new else FULL_TRACING if kind == FULL else TRACING
        start = time.perf_counter()
        minibatch = None
        with watch.lap(lap):
            if kind == REPLAY:
                self.feed.rest()
                loss = self._recorder.step()
            else:
                with contextlib.nullcontext() if progress.batch else watch.lap(LOOP):
                    minibatch = fetch()
                if not progress.batch:
                    start = time.perf_counter()  # an epoch's first wait is not a part of its steps
                step = self._steps.get(mask)
                if new:
                    step.trace(*self._spec)
                loss = float(step(*minibatch))
        ms = 1e3 * (time.perf_counter() - start)
        first_replay = kind == REPLAY and not progress.batch  # it builds its graph, or finds cold caches
        if minibatch is None or self.feed.is_full(minibatch):  # a smaller one's time would say nothing
            if not new and not first_replay:
                progress.step_took(self._while_awake(ms, lap))
            if minibatch is not None:
                self.feed.keep(minibatch)
        self._predict(mask, kind)
        progress.step_done(loss)
        state.loss, state.step_ms = loss, ms
        if self.open_ended and state.ends():
            state.model.stop_training = True

    def _while_awake(self, ms: float, lap: str) -> float:
        """Return what a step took, or the median where it took far longer: then the machine slept."""
        state = self.run_state
        recent_ms = state.progress.recent_ms[-100:]
        if len(recent_ms) < _KNOWN:
            return ms
        usual_ms = float(np.median(recent_ms))
        if ms <= _SUSPENDED * usual_ms:
            return ms
        lost_s = 1e-3 * (ms - usual_ms)
        state.watch.move(lost_s, lap, SUSPENDED)
        if state.deadline is not None:
            state.deadline.lost_s += lost_s
        return usual_ms

    def _require_the_same_tensors(self) -> None:
        """Refuse other trainable tensors than those of the run's beginning."""
        if [id(v) for v in self.run_state.model.trainable_variables] != self._trainable:
            raise UsageError(f"a callback froze or unfroze a layer during training: {_TWO_FITS}")

    def _predict(self, mask: np.ndarray, kind: str) -> None:
        """Add up what the profile says of a step."""
        policy, progress = self.run_state.policy, self.run_state.progress
        if policy is None or policy.timings is None:
            return
        timings = policy.timings
        predicted = timings.replay_time if kind == REPLAY else timings.step_time
        progress.predicted_ratio += predicted(mask) / timings.full_ms
        flops = timings.replay_flops if kind == REPLAY else timings.step_flops
        progress.flops += flops(mask) or 0.0

    def _note_selection(self, record: Dict[str, Any]) -> None:
        record = {"epoch": self.run_state.progress.epoch, **record}
        self.run_state.selections.append(record)
        for callback in self._callbacks:
            callback.on_selection(record)

    def _note_head(self, record: Dict[str, Any]) -> None:
        for callback in self._callbacks:
            callback.on_head(record)

    def _end_training(self) -> None:
        if self._going_on:
            self._tell(False)
        self._training.close()

    def _tell(self, going_on: bool) -> None:
        self._going_on = going_on
        for callback in self._callbacks:
            callback.on_training(going_on)
