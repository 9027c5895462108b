"""Frozen work done once in a run: recorded in the first epoch of an interval, replayed in the others."""

import contextlib
import itertools
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np
import tensorflow as tf

from elastictrainer.errors import RunError
from elastictrainer.reuse.forward_pass import ForwardPass
from elastictrainer.reuse.frozen_work import FrozenWork
from elastictrainer.reuse.recording import RecordingError
from elastictrainer.reuse.settings import ReuseSettings
from elastictrainer.reuse.split import Unusable
from elastictrainer.selection.clock import FULL_TRACING, TRACING
from elastictrainer.selection.policy import FULL, PLAIN, RECORDING, REPLAY
from elastictrainer.steps.compiled_step import CompiledStep, StepCache
from elastictrainer.steps.snapshot import restored
from elastictrainer.training.feed import Minibatch, Stream, minibatches
from elastictrainer.training.state import RunState
from elastictrainer.training.stopwatch import CALIBRATION


class Recorder:
    """Takes each step in its kind; what is frozen is recorded in the first epoch of an interval."""

    def __init__(self, run_state: RunState, steps: StepCache, spec: Any, settings: ReuseSettings):
        """
        Args:
            run_state: of the run.
            steps: its compiled steps; model and optimizer are theirs.
            spec: tf.TensorSpecs of any minibatch.
            settings: how to record.
        """
        self._run_state, self._steps, self._spec, self._settings = run_state, steps, spec, settings
        self._work: Optional[FrozenWork] = None
        self._forward: Optional[ForwardPass] = None
        self._mask: Optional[np.ndarray] = None  # what the recorded work's suffix trains
        self._failed = -1  # the interval that could not be recorded
        self._held: List[Minibatch] = []

    def kind(self, mask: np.ndarray) -> str:
        """The kind of the next step, see `Policy`."""
        state = self._run_state
        policy = state.policy
        if self._is_stale():
            state.say("recording again: what does not train was changed from outside")
            self.end()
        begun = state.recording
        if mask.all():
            self.end()
            return FULL
        if policy is None or policy.epochs <= 1 or policy.interval == self._failed:
            return PLAIN
        if begun is None or begun["interval"] != policy.interval or begun["epoch"] == state.progress.epoch:
            return RECORDING
        return REPLAY

    def run(
        self, mask: np.ndarray, kind: str, minibatch: Optional[Minibatch], fetch: Callable[[], Minibatch]
    ) -> Tuple[np.ndarray, str, float, bool]:
        """Train a step of `kind`, or a plain one where it turns out that nothing can be recorded.

        Args:
            mask: (N,) bool: what trains.
            kind: as `kind` says.
            minibatch: to train on; None: one that was recorded.
            fetch: gives one after all.

        Returns:
            What trained, the step's kind, its loss, and whether a graph was built for it.
        """
        state = self._run_state
        policy: Any = state.policy
        built = False
        if kind in (RECORDING, REPLAY):
            built = self._mask is None or bool((mask != self._mask).any()) or self._is_over()
            try:
                with state.watch.lap(TRACING if built else kind):
                    values = self._values(mask, kind, minibatch, built)
                    return mask, kind, float(self._step(kind, values)), built
            except (Unusable, RecordingError) as error:
                self._give_up(str(error))
            mask, kind = policy.without_recording(state.progress.step), PLAIN
        if minibatch is None:
            minibatch = fetch()
        new = not self._steps.has(mask)
        with state.watch.lap(FULL_TRACING if kind == FULL else TRACING) if new else contextlib.nullcontext():
            step = self._steps.get(mask)
            if new:
                step.trace(*self._spec)
            loss = float(step(*minibatch))
        if kind == FULL and policy.selects and not policy.interval:
            self._hold(minibatch)
        else:
            self._held = []  # this interval records nothing, and the next one does not begin with them
        return mask, kind, loss, built or new

    def _is_over(self) -> bool:
        """Whether the interval that was recorded has ended, or nothing is recorded."""
        begun, policy = self._run_state.recording, self._run_state.policy
        return begun is None or policy is None or begun["interval"] != policy.interval

    def _is_stale(self) -> bool:
        """Whether, at the beginning of an epoch, variables that the recording depends on have changed."""
        begun = self._run_state.recording
        if self._work is None or begun is None or self._run_state.progress.batch or self._is_over():
            return False
        return bool(begun["checksum"] != self._work.checksum())

    def _hold(self, minibatch: Any) -> None:
        """Keep a minibatch that was trained on before the first selection, to be recorded with the others."""
        if not self._run_state.progress.batch:
            self._held = []
        self._held.append(minibatch)

    def _prepare(self, mask: np.ndarray, minibatch: Optional[Minibatch]) -> None:
        """Build the graphs of a step that records `minibatch`, or replays. Unusable, RecordingError."""
        state = self._run_state
        policy: Any = state.policy
        if self._work is not None and not self._is_over():
            self._work.select(self._uncompiled(mask))
            self._mask = mask
            return
        self.end()
        assert minibatch is not None
        work = self._work = self._begin(mask, minibatch)
        for held in self._held:
            work.keep(held)
        self._mask = mask
        state.recording = {
            "interval": policy.interval,
            "epoch": state.progress.epoch,
            "batch": 0 if self._held else state.progress.batch,
            "mask": np.flatnonzero(mask).tolist(),
            "random": [value.tolist() for value in work.random_start],
            "checksum": work.checksum(),
        }
        self._held = []
        progress = state.progress
        progress.recorded_bytes = max(progress.recorded_bytes, work.recording.bytes)
        policy.recording_begins(work.trainable)
        state.say(
            f"recording what is frozen: {100 * work.share:.0f} % of its work is done once, "
            f"{1e-6 * work.recording.bytes:.0f} MB {work.where}"
        )

    def _values(self, mask: np.ndarray, kind: str, minibatch: Optional[Minibatch], built: bool) -> List[Any]:
        """What the step begins with, recorded or read; Unusable and RecordingError, in all processes alike.

        A process that fails must not leave the others waiting for its gradients: they give up together.
        """
        state = self._run_state
        failure: Optional[Exception] = None
        values: List[Any] = []
        try:
            if built:
                self._prepare(mask, minibatch)
            assert self._work is not None
            if kind == RECORDING:
                assert minibatch is not None
                values = self._work.keep(minibatch)
            else:
                values = self._work.read(state.progress.epoch, state.progress.batch)
        except (Unusable, RecordingError) as error:
            failure = error
        # Reading fails by a damaged file alone: not worth an exchange in every step.
        if built or kind == RECORDING:
            failure = self._agreed(failure)
        elif state.workers and failure is not None:
            raise RunError(
                f"what was recorded cannot be read: {failure} Start all processes again, each with --resume."
            ) from None
        if failure is not None:
            raise failure
        return values

    def _agreed(self, failure: Optional[Exception]) -> Optional[Exception]:
        """`failure`, or that of another process where this one has none."""
        workers = self._run_state.workers
        failed = workers.gather([failure is not None])[:, 0] if workers else np.zeros(1)
        if failed.any() and failure is None:
            return RecordingError(f"process {int(failed.argmax())} cannot")
        return failure

    def _step(self, kind: str, values: List[Any]) -> tf.Tensor:
        """Train on what was recorded; returns the loss."""
        assert self._work is not None
        progress = self._run_state.progress
        if kind == RECORDING:
            progress.recorded += 1
        else:
            progress.replayed += 1
        return self._work.train(values)

    def _give_up(self, reason: str) -> None:
        """Do all work in every step until the interval ends, and say why."""
        policy: Any = self._run_state.policy
        self._failed = policy.interval
        self.end()
        self._run_state.say(f"not recording: {reason}")

    def end(self) -> None:
        """Free what was recorded."""
        if self._work is not None:
            self._work.close()
        self._work = self._mask = None
        self._run_state.recording = None

    def resume(self, stream: Stream, first_epoch: int) -> None:
        """Record again what a run that goes on had recorded: a file of an earlier process is not trusted.

        Args:
            stream: the run's data.
            first_epoch: the number of the run's first epoch in it.
        """
        state = self._run_state
        policy: Any = state.policy
        begun, progress = state.recording, state.progress
        if not policy.interval and policy.selects and progress.batch:  # before the first selection
            self._held = list(minibatches(stream(first_epoch + progress.epoch, 0).take(progress.batch)))
        if begun is None or self._is_over():
            return
        state.say("recording again what is frozen")
        failure: Optional[Exception] = None
        with state.watch.lap(CALIBRATION):  # an uninterrupted run has no such work
            try:
                self._record_again(stream, first_epoch, begun)
            except (Unusable, RecordingError) as error:  # less room, or another device, than there was
                failure = error
            failure = self._agreed(failure)
        if failure is not None:
            self._give_up(str(failure))
            policy.without_recording(progress.step)

    def _record_again(self, stream: Stream, first_epoch: int, begun: Dict[str, Any]) -> None:
        state = self._run_state
        progress, steps = state.progress, state.steps_per_epoch
        end = progress.batch if progress.epoch == begun["epoch"] else steps
        again = minibatches(stream(first_epoch + begun["epoch"], begun["batch"]).take(end - begun["batch"]))
        first = next(again)
        mask = np.isin(np.arange(len(self._steps.objective.model.trainable_variables)), begun["mask"])
        work = self._work = self._begin(mask, first)
        self._mask = mask
        with restored(work.random_states):  # they are where the run stopped, and go on from there
            for variable, value in zip(work.random_states, begun["random"]):
                variable.assign(value)
            for minibatch in itertools.chain([first], again):
                work.keep(minibatch)

    def _begin(self, mask: np.ndarray, minibatch: Minibatch) -> FrozenWork:
        state = self._run_state
        policy: Any = state.policy
        capacity = len(tf.nest.flatten(minibatch[0])[0]) * state.steps_per_epoch
        step = self._uncompiled(mask)
        if self._forward is None:
            self._forward = ForwardPass(step.objective, step.optimizer, minibatch)
        return FrozenWork(
            step, minibatch, self._spec, capacity, self._settings, self._forward, policy.timings
        )

    def _uncompiled(self, mask: np.ndarray) -> CompiledStep:
        steps = self._steps
        variables = [v for v, chosen in zip(steps.objective.model.trainable_variables, mask) if chosen]
        return CompiledStep(steps.objective, steps.optimizer, variables, steps.metrics)
