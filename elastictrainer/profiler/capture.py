"""Run a training step on this device, and trace it."""

import tempfile
import time
from pathlib import Path
from typing import Any, Tuple

import numpy as np
import tensorflow as tf

from elastictrainer.errors import RunError
from elastictrainer.profiler.xplane import STEP_EVENT, Trace, read_trace
from elastictrainer.steps import TrainStep


def step_ms(step: TrainStep, batch: Tuple[Any, Any], count: int) -> np.ndarray:
    """(count,) wall-clock ms of consecutive steps on `batch`."""
    times = np.empty(count)
    for k in range(count):
        start = time.perf_counter()
        float(step(*batch))
        times[k] = time.perf_counter() - start
    return times * 1e3


def capture(step: TrainStep, batch: Tuple[Any, Any], warmup: int, steps: int) -> Tuple[Trace, np.ndarray]:
    """Warm up, time and trace `step`.

    Args:
        step: a traced step.
        batch: inputs and labels, reused for every step.
        warmup: steps to run before anything is measured.
        steps: steps to time without a trace, then as many with.

    Returns:
        The trace, and (steps,) ms of the steps that ran untraced.

    Raises:
        RunError: the profiler is in use already or wrote no trace.
    """
    step_ms(step, batch, warmup)
    untraced = step_ms(step, batch, steps)
    with tempfile.TemporaryDirectory(prefix="elastictrainer-trace-") as folder:
        options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=2, python_tracer_level=0)
        try:
            tf.profiler.experimental.start(folder, options=options)
        except tf.errors.AlreadyExistsError:
            raise RunError("another TensorFlow profile is running in this process; stop it first.") from None
        try:
            for k in range(steps):
                with tf.profiler.experimental.Trace(STEP_EVENT, step_num=k):
                    float(step(*batch))
        finally:
            tf.profiler.experimental.stop()
        written = sorted(Path(folder).rglob("*.xplane.pb"))
        if not written:
            raise RunError("TensorFlow's profiler wrote no trace (.xplane.pb).")
        return read_trace(written[-1]), untraced
