"""Run a training step on this device, and trace it."""

import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Tuple

import numpy as np
import tensorflow as tf

from elastictrainer.errors import RunError
from elastictrainer.profiler.xplane import STEP_EVENT, Trace, read_trace
from elastictrainer.runs import resident
from elastictrainer.steps.compiled_step import CompiledStep

SETTLED = 100  # runs after which a compiled step is as fast as it becomes; `warm_up` says why
_LEAST_RUNS = 3  # of a warm-up, however long a step takes: the first builds the graph and fills caches
_MOST_S = 5.0  # of a warm-up: a step that runs less than a hundred times in it has few short ops to settle


def step_ms(step: CompiledStep, batch: Tuple[Any, Any], count: int) -> np.ndarray:
    """Measure (count,) wall-clock ms of consecutive steps on `batch`."""
    times = np.empty(count)
    for k in range(count):
        start = time.perf_counter()
        float(step(*batch))
        times[k] = time.perf_counter() - start
    return times * 1e3


def warm_up(
    step: CompiledStep,
    batch: Tuple[Any, Any],
    runs: int = SETTLED,
    clock: Callable[[], float] = time.perf_counter,
) -> int:
    """Run `step` until it has run `runs` times: for five seconds at most, but three times at least.

    TensorFlow's executor first estimates every op as a long one, and hands it to another thread. The estimate
    falls by a tenth with every run. After about ninety runs short ops stay on their thread, and steps of many
    small ops are faster. A training run soon gets there; a measurement has to wait for it.

    Returns:
        How many steps were made.
    """
    start, made = clock(), 0
    while step.runs < runs and (made < _LEAST_RUNS or clock() - start < _MOST_S):
        float(step(*batch))
        made += 1
    return made


def capture(step: CompiledStep, batch: Tuple[Any, Any], steps: int) -> Tuple[Trace, np.ndarray]:
    """Time and trace `step`.

    Args:
        step: a traced step, warm.
        batch: inputs and labels, reused for every step.
        steps: steps to time without a trace, then as many with.

    Returns:
        The trace, and (steps,) ms of the steps that ran untraced.

    Raises:
        RunError: the profiler is in use already or wrote no trace.
    """
    untraced = step_ms(step, batch, steps)
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
        resident.give_back()  # of ViT's steps 0.2 GB of events, and as much again where they are read
        trace = read_trace(written[-1])
    resident.give_back()
    return trace, untraced
