"""A run without a device: the real policy, with a fake clock and step times from a formula. No TensorFlow."""

import contextlib
from collections import defaultdict

import numpy as np
import pytest

from elastictrainer import TensorTimings
from elastictrainer.selection.budget import Budget
from elastictrainer.selection.clock import IMPORTANCE, TIMING, TRACING
from elastictrainer.selection.elastic import ElasticPolicy
from elastictrainer.selection.policy import FULL, PLAIN, RECORDING, REPLAY
from elastictrainer.selection.schedule import Schedule
from reuse_builders import with_reuse

STEPS = "steps"


class FakeClock:
    """Seconds by lap; they pass only where `pass_s` says so.

    Attributes:
        laps: the names of the laps that were entered, in their order.
    """

    def __init__(self, **seconds):
        self.seconds = defaultdict(float, seconds)
        self.laps = []

    @contextlib.contextmanager
    def lap(self, name):
        self.laps.append(name)
        yield

    def pass_s(self, name, seconds):
        self.seconds[name] += seconds

    def of(self, *names):
        return sum(self.seconds[name] for name in names)

    def training(self):
        return sum(self.seconds.values())


def chain(n=60, full_ms=100.0):
    """A chain of alike tensors; enough for a selection to spend nearly all that it is given."""
    scale = full_ms / 100
    dw, dy = np.full(n, 50.0 / n * scale), np.full(n, 20.0 / n * scale)
    return TensorTimings.from_chain(list(map(str, range(n))), 30.0 * scale, dw, dy)


def scores(n, seed=0):
    """From a step's number to random importances, all of them positive."""
    return lambda step: np.random.default_rng([seed, step]).lognormal(0.0, 0.5, n)


def simulate(
    rho,
    slope=1.0,
    constant=0.0,
    epochs=12,
    steps_per_epoch=700,
    selecting_s=4.0,
    compiling_s=1.5,
    selected_takes=1.0,
    after_change=1.0,
    noise=0.03,
    load=lambda step: 1.0,
    timings=None,
    seed=0,
    reuse=False,
    recording_takes=1.0,
    wandering=0.0,
):
    """A run on a device where a step takes slope x profile + constant.

    Args:
        selecting_s: a selection, its first compilation included.
        selected_takes: a selected step takes this many times what slope x profile says.
        after_change: the first step after full ones, or after selected ones, takes this many times as long.
        noise: about the relative standard deviation of a step.
        load: from a step's number to how many times longer everything takes then.
        reuse: frozen work is recorded and replayed.
        recording_takes: a recording step takes this many times what is predicted.
        wandering: relative standard deviation of what selected steps take, drawn every 250 steps; full steps
            beside the run deviate by half of that.

    Returns:
        By step, the time so far over that of full training; and the policy.
    """
    timings = timings or (with_reuse(chain()) if reuse else chain())
    schedule = Schedule(epochs, steps_per_epoch, interval=4, reuse=reuse)
    clock, random = FakeClock(), np.random.default_rng(seed)
    other_random = np.random.default_rng([seed, 1])
    importance = scores(len(timings), seed)

    def score(step):
        clock.pass_s(IMPORTANCE, max(selecting_s - compiling_s, 0.1 * selecting_s))
        return importance(step)

    def full_steps(step):
        """What full steps beside the run take."""
        full_ms = (slope * timings.full_ms + constant) * load(step)
        wandered = other_random.lognormal(0, wandering / 2)
        times = full_ms * wandered * other_random.lognormal(-(noise**2) / 2, noise, schedule.TIMED)
        clock.pass_s(TIMING, 1e-3 * (full_ms + times.sum()))
        return times.tolist()

    policy = ElasticPolicy(Budget(rho, timings, schedule), score, clock, time_full=full_steps)
    full_s, ratios, was_full = 0.0, [], None
    predicted_ms, graphs = {}, set()  # by mask, kind and interval; what is not among the graphs has none yet
    recorder = FakeRecorder(policy, timings)
    for step in range(schedule.steps):
        mask = policy.next_mask(step, *divmod(step, steps_per_epoch))
        kind = recorder.kind(mask, step // steps_per_epoch)
        key, full = (mask.tobytes(), kind, policy.interval), bool(mask.all())
        graph = (mask.tobytes(), kind == PLAIN, policy.interval)
        compiled = graph not in graphs and not full
        graphs.add(graph)
        if key not in predicted_ms:
            predicted_ms[key] = recorder.step_ms(mask, kind)
            if kind == RECORDING:
                predicted_ms[key] *= recording_takes
        full_ms = (slope * timings.full_ms + constant) * load(step)
        selected_ms = (slope * predicted_ms[key] * selected_takes + constant) * load(step)
        if step % 250 == 0:
            wandered = other_random.lognormal(-(wandering**2) / 2, wandering)
        ms = full_ms if full else min(full_ms, selected_ms * wandered)
        if step % 20 == 0:
            neighbour = random.lognormal(0, 0.04)  # other work on the machine comes and goes
        ms *= neighbour * random.lognormal(-(noise**2) / 2, noise)
        if was_full is not None and full != was_full:
            ms *= after_change
        was_full = full
        clock.pass_s(STEPS, ms / 1e3)
        clock.pass_s(TRACING, compiling_s * compiled)
        policy.step_taken(step, ms + 1e3 * compiling_s * compiled, None, compiled, kind)
        full_s += neighbour * full_ms / 1e3
        ratios.append(clock.training() / full_s)
    full_training_s = 1e-3 * policy.full_training_ms(schedule.steps)
    assert full_training_s == pytest.approx(full_s, rel=0.04 + 1.5 * wandering * reuse)
    return ratios, policy


class FakeRecorder:
    """Says which steps record and which replay, as a run's does, and what they take by the profile."""

    def __init__(self, policy, timings):
        self.policy, self.timings = policy, timings
        self.interval, self.epoch, self.mask = 0, 0, None

    def kind(self, mask, epoch):
        if mask.all():
            return FULL
        if self.policy.epochs <= 1:
            return PLAIN
        if self.policy.interval != self.interval:
            self.interval, self.epoch, self.mask = self.policy.interval, epoch, mask
            order = self.timings.order
            deepest = np.flatnonzero(mask[order])[-1]
            self.trainable = np.isin(np.arange(len(mask)), order[: deepest + 1])
            self.policy.recording_begins(self.trainable)
        return RECORDING if epoch == self.epoch else REPLAY

    def step_ms(self, mask, kind):
        if kind == RECORDING:
            return self.timings.recording_time(mask)
        if kind == REPLAY:
            return self.timings.after_recording(self.mask, self.trainable).step_time(mask)
        return self.timings.step_time(mask)


class FakeRenewal:
    """Returns a given profile; notes what it is called with."""

    def __init__(self, profile):
        self.profile = profile
        self.traced = 0
        self.finished = []
        self.abandoned = 0

    def begin(self):
        self.traced = 0

    @contextlib.contextmanager
    def step(self):
        yield
        self.traced += 1

    def finish(self, timings, full_ms, step, minibatch):
        self.finished.append((timings, full_ms, step, minibatch, self.traced))
        return self.profile

    def abandon(self):
        self.abandoned += 1


class SimulatedRun:
    """A run of the real policy in which steps take given times.

    Args:
        full_ms: of a step that trains every tensor.
        selected_ms: of a step that trains the selected ones; None: what the profile predicts.
        options: of ElasticPolicy.
    """

    def __init__(
        self,
        timings,
        full_ms,
        selected_ms=None,
        epochs=2,
        steps_per_epoch=700,
        interval=2,
        rho=0.5,
        **options,
    ):
        self.timings, self.full_ms, self.selected_ms = timings, full_ms, selected_ms
        self.schedule = Schedule(epochs, steps_per_epoch, interval)
        self.clock = FakeClock()
        self.records, self.said, self.rested, self.masks = [], [], [], []
        options = {"score": scores(len(timings)), **options}
        self.policy = ElasticPolicy(
            Budget(rho, timings, self.schedule),
            clock=self.clock,
            at_rest=lambda mask: self.rested.append(len(self.masks)),
            log=self.records.append,
            say=self.said.append,
            **options,
        )

    def go(self, end=None):
        """Take the steps up to number `end`, or all."""
        built = {mask.tobytes() for mask in self.masks}
        while len(self.masks) < (end or self.schedule.steps):
            step = len(self.masks)
            mask = self.policy.next_mask(step, *divmod(step, self.schedule.steps_per_epoch))
            ms = self.full_ms if mask.all() else self.selected_ms or self.timings.step_time(mask)
            with self.policy.stepping():
                self.clock.pass_s(STEPS, ms / 1e3)
            new, kind = mask.tobytes() not in built, FULL if mask.all() else PLAIN
            self.policy.step_taken(step, ms, f"minibatch {step}", new, kind)
            built.add(mask.tobytes())
            self.masks.append(mask)
        return self
