"""Profile a model: one full training step, traced and charged to its tensors."""

import tempfile
import time
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional, Tuple, Union

import numpy as np
import tensorflow as tf

from elastictrainer.errors import RunError, UsageError
from elastictrainer.profiler import calibration
from elastictrainer.profiler.attribution import attribute, read_by_calls
from elastictrainer.profiler.charging import profile_from_trace
from elastictrainer.profiler.cost_groups import Json
from elastictrainer.profiler.memory import StepMemory, step_memory
from elastictrainer.profiler.profile import Profile
from elastictrainer.profiler.xplane import STEP_EVENT, Trace, read_trace
from elastictrainer.runs import environment, resident
from elastictrainer.steps import optimizers
from elastictrainer.steps.compiled_step import CompiledStep, CompiledSteps
from elastictrainer.steps.objective import Minibatch, Objective, examples_in
from elastictrainer.steps.requirements import require_trainable
from elastictrainer.steps.snapshot import preserve_variables
from elastictrainer.steps.timing import SETTLED, step_ms, warm_up

_MOST_CAPTURES = 4  # other work that slows all of them lasts longer than a profile can wait
_LEAST_STEPS = 2  # traced where more would take too long, or too much memory
_SHARE_OF_CAPTURES = 0.2  # of the time that a profile may take, for one capture
_SHARE_OF_GRAPH = 0.5  # of a short profile's time, for its graph and the first step
_SHARE_OF_RUN = 0.1  # that timing may take: at rho 0.5 a run saves five times that
# What calibration takes besides its seconds, in times of the full step's graph: the graphs of four
# selections, whole and in two parts, and their first steps. The cache's costs take half as many seconds more.
_CALIBRATION_GRAPHS, _CALIBRATIONS = 4.0, 1.5
_LEAST_CALIBRATION_S = 2.0  # shorter measurements differ by more than they are to correct
_AGREEMENT = 1.03  # of the two fastest captures: medians of a quiet machine differ by 3 % at most


class TooSlow(RunError):
    """Raised where a profile would take longer than it may."""


def profile_model(
    model: tf.Module,
    loss: Union[Callable[[tf.Tensor, tf.Tensor], tf.Tensor], Objective],
    batch: Minibatch,
    optimizer: Any = None,
    *,
    metrics: Tuple[Any, ...] = (),
    warmup_steps: int = SETTLED,
    steps: int = 8,
    calibrate_s: float = 40.0,
    training_steps: Optional[int] = None,
    allowed_s: float = np.inf,
    must_fit: bool = False,
    validate: int = 0,
    seed: int = 0,
    undo: bool = False,
    metadata: Optional[Json] = None,
) -> Profile:
    """Measure how long each trainable tensor's work takes on this device (paper Sec. 3.1 and 5.1).

    Works for any Keras model, and for a plain tf.Module that is called with inputs: ops are charged by what
    depends on them in the graph, never by layer names. The model and the optimizer are left as they were.

    Args:
        loss: takes labels and outputs, returns a scalar; or an Objective of the model.
        batch: inputs and labels of the size to train with.
        optimizer: the one to train with; None: the paper's SGD.
        metrics: Keras metrics that the training step updates.
        warmup_steps: before a measurement, of the full step and of each selection; two seconds at most.
        steps: traced steps; times are medians over them.
        calibrate_s: about how many seconds to time the two selections of `calibration` and the full step, in
            turn.
        training_steps: of the run that the profile is for. Timing takes a tenth of what they take at most, so
            that a short run does not wait longer for its profile than it saves.
        allowed_s: about how many seconds all may take: a slow device makes fewer steps, two at least, and no
            calibration, or a shorter one, where they are used up.
        must_fit: whether to give up where building the graph shows that it takes longer than that.
        validate: number of random selections, by `seed`, to measure against the prediction.
        undo: have each step undo its own updates, tensor by tensor, so that weights and slots are never there
            twice: for a process whose memory is limited. Steps are a little slower, and selections not timed.
        metadata: of model and data, for the profile.

    Raises:
        UsageError: the model has no trainable tensor, the loss depends on none, or the machine has too little
            memory for a step.
        TooSlow: with `must_fit`.
    """
    ends = time.perf_counter() + allowed_s
    require_trainable(model)
    variables = model.trainable_variables
    optimizer = optimizers.make("sgd") if optimizer is None else optimizer
    optimizers.build(optimizer, variables)
    objective = loss if isinstance(loss, Objective) else Objective(model, loss)
    state = [*variables, *optimizers.variables_of(optimizer)]
    step = CompiledStep(objective, optimizer, variables, metrics, undone=state if undo else [])
    began = time.perf_counter()
    memory = traced_memory(step, batch)
    _require_profilable(step, memory)
    if undo:
        steps = min(steps, _LEAST_STEPS)  # the events of a step of ViT take 0.1 GB while they are read
    with preserve_variables([*step.state(), *state]):
        step(*batch).numpy()
        graph_s = time.perf_counter() - began
        if must_fit and graph_s > _SHARE_OF_GRAPH * allowed_s:
            raise TooSlow(f"a profile takes more than {allowed_s:.0f} s here")
        warmed = warm_up(step, batch, warmup_steps)
        if np.isfinite(ends):
            capture_ms = 1e3 * _SHARE_OF_CAPTURES * (ends - time.perf_counter())
            fitting = capture_ms / (2 * step_ms(step, batch, 1)[0])  # a capture makes each step twice
            steps = int(np.clip(fitting, _LEAST_STEPS, steps))
        captured = _quietest_capture(step, batch, steps, ends)
        profile = profile_from_trace(step, *captured)
        profile.memory = memory
        if training_steps is not None:
            calibrate_s = min(calibrate_s, _SHARE_OF_RUN * training_steps * 1e-3 * profile.full_ms)
        fitting_s = (ends - time.perf_counter() - _CALIBRATION_GRAPHS * graph_s) / _CALIBRATIONS
        # Steps of selections have slots: where steps are to undo theirs, there is no memory to time others.
        calibrates = not undo and fitting_s >= min(calibrate_s, _LEAST_CALIBRATION_S)
        calibrate_s = min(calibrate_s, fitting_s)
        profile.metadata = {
            **(metadata or {}),
            **profile.metadata,
            **environment.describe(),
            "created": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "graph_ms": 1e3 * graph_s,  # to build the full step and to run it for the first time
            "warmup_steps": warmed,
            "traced_steps": steps,
            "calibration_seconds": calibrate_s if calibrates else 0.0,
        }
        if not calibrates:
            return profile
        compiled = CompiledSteps(objective, optimizer, metrics, full=step)
        masks = [calibration.cheapest(profile), calibration.earliest(profile)]
        ratios = calibration.ratios_to_full(
            compiled.get, masks, profile.connected, batch, seconds=calibrate_s, warmup=warmup_steps
        )
        profile = calibration.calibrated(profile, *ratios)
        if validate:
            profile.validation = calibration.validate_profile(profile, compiled, batch, validate, seed)
    return profile


def traced_memory(step: CompiledStep, batch: Minibatch) -> Optional[StepMemory]:
    """Trace a full step before its first run, and return its memory; None on a GPU, which has its own."""
    loaded = resident.settled_bytes()
    step.trace(*batch)
    if tf.config.list_physical_devices("GPU") or step.graph is None:
        return None
    operations = step.graph.get_operations()
    _, charges = attribute(operations, step.loss, step.gradients, step.handles)
    calls = read_by_calls(step.graph, charges, step.gradients)
    examples = examples_in(batch)
    slots = optimizers.slot_bytes(step.optimizer, step.variables)
    return step_memory(operations, charges, calls, examples, slots, loaded)


def _require_profilable(step: CompiledStep, memory: Optional[StepMemory]) -> None:
    """Raise UsageError where the loss depends on no tensor, or the machine has too little memory."""
    every = np.array([gradient is not None for gradient in step.gradients])
    if not every.any():
        raise UsageError(
            "the loss depends on no trainable tensor of the model: there is no gradient to profile."
        )
    if memory is None:
        return
    needed, there = memory.total(every), environment.memory_bytes()
    if needed > there:
        raise UsageError(
            f"a step of {memory.batch} examples takes some {needed / 1e9:.1f} GB, and this machine has "
            f"{there / 1e9:.1f} GB. Take smaller minibatches (--batch-size) or images (--image-size)."
        )


class Capture(NamedTuple):
    """The trace of some steps, and the ms of a step: the median of as many that ran untraced."""

    trace: Trace
    step_ms: float


def capture(step: CompiledStep, batch: Minibatch, steps: int) -> Capture:
    """Time so many runs of a warm, traced `step` on `batch`, then trace as many.

    RunError where the profiler is in use already or wrote no trace.
    """
    untraced_ms = float(np.median(step_ms(step, batch, steps)))
    options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=2, python_tracer_level=0)
    with tempfile.TemporaryDirectory(prefix="elastictrainer-trace-") as folder:
        try:
            with tf.profiler.experimental.Profile(folder, options):
                for number in range(steps):
                    with tf.profiler.experimental.Trace(STEP_EVENT, step_num=number):
                        float(step(*batch))
        except tf.errors.AlreadyExistsError:
            raise RunError("another TensorFlow profile is running in this process; stop it first.") from None
        written = sorted(Path(folder).rglob("*.xplane.pb"))
        if not written:
            raise RunError("TensorFlow's profiler wrote no trace (.xplane.pb).")
        resident.release_memory()  # of ViT's steps 0.2 GB of events, and as much again where they are read
        trace = read_trace(written[-1])
    resident.release_memory()
    return Capture(trace, untraced_ms)


def _quietest_capture(step: CompiledStep, batch: Minibatch, steps: int, ends: float) -> Capture:
    """Capture until the two fastest agree, or past `ends`; the fastest counts: other work adds time."""
    captures = [capture(step, batch, steps)]
    while len(captures) < _MOST_CAPTURES and time.perf_counter() < ends:
        captures.append(capture(step, batch, steps))
        fastest, second, *_ = sorted(each.step_ms for each in captures)
        if second <= _AGREEMENT * fastest:
            break
    return min(captures, key=lambda each: each.step_ms)
