"""The loop over minibatches: what Keras' `fit` calls for each of them, and tells of its epochs."""

import contextlib
import time
from typing import Any, Callable, Dict, List, Optional, Sequence

import numpy as np
import tensorflow as tf

from elastictrainer.errors import UsageError
from elastictrainer.profiler.profile import profile_model
from elastictrainer.profiler.timings import TensorTimings
from elastictrainer.reuse.costs import with_reuse_costs
from elastictrainer.reuse.settings import ReuseSettings
from elastictrainer.selection.build import make_policy, repeated
from elastictrainer.selection.clock import BUILDING, LOOP, SELECTION
from elastictrainer.selection.fixed import FixedPolicy
from elastictrainer.selection.policy import RECORDING, REPLAY
from elastictrainer.selection.schemes import Scheme
from elastictrainer.selection.settings import SelectionSettings
from elastictrainer.steps import compiled, optimizers
from elastictrainer.steps.compiled_step import CompiledStep, StepCache
from elastictrainer.steps.keras_compat import count_step
from elastictrainer.steps.objective import Objective
from elastictrainer.steps.timing import time_steps
from elastictrainer.training.callback import TrainerCallback
from elastictrainer.training.feed import Feed, Minibatch, Probe, Stream, unpacked
from elastictrainer.training.recorder import Recorder
from elastictrainer.training.state import RunState
from elastictrainer.training.stopwatch import CALIBRATION, STEPS, VALIDATION

_TWO_FITS = "call Trainer.fit twice, and between the two change the model and compile it."


class TrainFunction(tf.keras.callbacks.Callback):
    """Takes the steps of a run: as a model's `train_function`, which Keras calls, and its callback.

    Attributes:
        timings: the model's profile, the latest one.
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
    ):
        """
        Args:
            run_state: of the run, at its beginning; the loop moves it on.
            scheme, settings: which tensors train.
            timings: the model's profile; None: made at the first minibatch where the scheme selects.
            probe: see Trainer.
            callbacks: told of selections, renewed profiles, and when training goes on.
            reuse: how frozen work is recorded.
        """
        super().__init__()
        self.timings = timings
        self.run_state = run_state
        self._scheme, self._settings, self._callbacks, self._reuse = scheme, settings, callbacks, reuse
        self._feed = Feed(run_state, probe, settings.importance_batches)
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
            self._feed.check_end()  # Keras 3 ends an epoch where it knows that there is no more data
        assert logs is not None and state.policy is not None
        ratio = state.ratio(state.epoch_step_ms())
        logs["ratio"] = float("nan") if ratio is None else ratio
        mask = state.policy.mask
        logs["selected"] = len(state.model.trainable_variables) if mask is None else int(mask.sum())

    def __call__(self, iterator: Any) -> Dict[str, Any]:
        """Train on the next minibatch of `iterator`; returns the metrics so far."""
        if self.run_state.policy is None:
            first = self._feed.fetch(iterator)
            with self.run_state.watch.lap(BUILDING):
                self.build(first, iterator.element_spec)
            self.calibrate()
            self._step(lambda: first)
        else:
            self._step(lambda: self._feed.fetch(iterator))
        results: Dict[str, Any] = self._counted()
        return results

    # What Trainer.fit calls

    def start_at(self, epoch: int) -> None:
        """The run's first epoch is number `epoch` to Keras."""
        self._first_epoch = epoch
        self.run_state.epochs -= epoch

    def build_on(self, data: tf.data.Dataset) -> None:
        """`build` by the first minibatch of `data`, which must not end."""
        self._feed.endless = True
        self.build(self._feed.fetch(iter(data)), data.element_spec)

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
        if self._feed.is_full(minibatch):
            self._feed.keep(minibatch)
        self._spec = unpacked(spec)
        self.metrics = compiled.CompiledMetrics(model)
        self._counted = tf.function(self._count_step)  # a graph takes half the time of the ops one by one
        mean = state.workers.mean if state.workers else None
        objective = compiled.CompiledObjective(model, None, scheme.penalty(model), mean)
        self._steps = StepCache(objective, model.optimizer, [self.metrics])
        if state.rho is not None and self.timings is None:
            with state.watch.lap(CALIBRATION):
                state.say("profiling the model")
                self.timings = profile_model(
                    model,
                    objective,
                    minibatch,
                    model.optimizer,
                    metrics=(self.metrics,),
                    training_steps=state.epochs * state.steps_per_epoch,
                )
                state.say(f"full step {self.timings.full_ms:.1f} ms, rho_min {self.timings.rho_min:.3f}")
        self._recorder = Recorder(state, self._steps, self._spec, self._reuse)
        recording = self._reuse.reuse != "off"
        parts = [part for part in tf.nest.flatten(self._spec) if part is not None]
        if recording and not all(isinstance(part, tf.TensorSpec) for part in parts):
            state.say("not recording: the data has ragged or sparse parts")
            recording = False
        if recording and self.timings is not None and self.timings.reuse is None:
            if state.workers:  # each would measure something else, and select by it
                state.say("not recording: the profile does not say what that costs (et-profile makes one)")
                recording = False
            else:
                self._measure_reuse(objective, minibatch)
        state.policy = make_policy(
            scheme,
            self._settings,
            self.timings,
            state.epochs,
            state.steps_per_epoch,
            self._steps,
            state.watch,
            self._feed.probe,
            self._note_selection,
            state.say,
            self._keep_profile,
            recording,
        )

    def resume(self, stream: Stream) -> None:
        """The run's variables and state are as it goes on with them: at its beginning, or restored."""
        state = self.run_state
        first_epoch = self._first_epoch or 0
        self._feed.read_again(stream, first_epoch)
        self._recorder.resume(stream, first_epoch)
        self._feed.follow(stream, first_epoch)
        if state.progress.batch:  # Keras resets the metrics where this epoch goes on
            self._metric_values = [variable.numpy() for variable in state.metric_variables()]
        if not state.progress.step:
            self.calibrate()

    def calibrate(self) -> None:
        """Time full steps for a scheme that makes none, and leave no trace of them."""
        policy, model = self.run_state.policy, self.run_state.model
        if not isinstance(policy, FixedPolicy) or policy.mask.all():
            return
        with self.run_state.watch.lap(CALIBRATION):
            step = CompiledStep(
                compiled.CompiledObjective(model, None),
                model.optimizer,
                model.trainable_variables,
                [self.metrics],
            )
            minibatches = repeated(self._feed.probe, self.run_state.progress.step)
            policy.calibration_ms += time_steps(step, minibatches)

    def close(self) -> None:
        """Let go of what is held."""
        self._training.close()
        if self.run_state.policy is not None:
            self._recorder.end()
            self.run_state.policy.close()

    # A step

    def _count_step(self) -> Dict[str, Any]:
        count_step(self.run_state.model)
        return self.metrics.results()

    def _step(self, fetch: Callable[[], Minibatch]) -> None:
        """Decide what trains, fetch the minibatch, run the step, time it, and account for it."""
        state, progress, watch = self.run_state, self.run_state.progress, self.run_state.watch
        policy: Any = state.policy
        step = progress.step
        if not progress.batch:  # to ask in every step would take time
            self._require_the_same_tensors()
        with watch.lap(SELECTION):
            mask = policy.next_mask(step, progress.epoch, progress.batch)
        kind = self._recorder.kind(mask)
        start = time.perf_counter()
        with policy.stepping(), watch.lap(STEPS):
            minibatch = None
            if kind == REPLAY:
                self._feed.rest()
            else:
                with contextlib.nullcontext() if progress.batch else watch.lap(LOOP):
                    minibatch = fetch()
            waited_ms = 0.0 if progress.batch else 1e3 * (time.perf_counter() - start)
            mask, kind, loss, new = self._recorder.run(mask, kind, minibatch, fetch)
        ms = 1e3 * (time.perf_counter() - start)
        if minibatch is None or self._feed.is_full(minibatch):  # a smaller one's time would say nothing
            if not new:
                progress.step_took(ms)
            policy.step_taken(step, ms - waited_ms, minibatch, new, kind)
            if minibatch is not None:
                self._feed.keep(minibatch)
        self._predict(mask, kind)
        progress.step_done(loss)
        state.loss, state.step_ms = loss, ms

    def _require_the_same_tensors(self) -> None:
        """UsageError where other tensors can be trained than when the run began."""
        if [id(v) for v in self.run_state.model.trainable_variables] != self._trainable:
            raise UsageError(f"a callback froze or unfroze a layer during training: {_TWO_FITS}")

    def _measure_reuse(self, objective: Objective, minibatch: Minibatch) -> None:
        """Add to the profile what recording costs, where it does not say."""
        assert self.timings is not None
        with self.run_state.watch.lap(CALIBRATION):
            optimizer = self.run_state.model.optimizer
            self.timings = with_reuse_costs(self.timings, objective, optimizer, minibatch)

    def _predict(self, mask: np.ndarray, kind: str) -> None:
        """Add up what the profile says of a step."""
        policy, progress = self.run_state.policy, self.run_state.progress
        if policy is None or policy.timings is None:
            return
        timings = policy.timings
        times = {RECORDING: timings.recording_time, REPLAY: timings.replay_time}
        progress.predicted_ratio += times.get(kind, timings.step_time)(mask) / timings.full_ms
        flops = timings.replay_flops if kind == REPLAY else timings.step_flops
        progress.flops += flops(mask) or 0.0

    def _note_selection(self, record: Dict[str, Any]) -> None:
        record = {"epoch": self.run_state.progress.epoch, **record}
        self.run_state.selections.append(record)
        for callback in self._callbacks:
            callback.on_selection(record)

    def _keep_profile(self, timings: TensorTimings) -> None:
        self.timings = timings
        for callback in self._callbacks:
            callback.on_profile(timings)

    def _end_training(self) -> None:
        if self._going_on:
            self._tell(False)
        self._training.close()

    def _tell(self, going_on: bool) -> None:
        self._going_on = going_on
        for callback in self._callbacks:
            callback.on_training(going_on)
