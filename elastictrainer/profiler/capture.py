"""Run a training step on this device, and trace it."""

import tempfile
from pathlib import Path
from typing import Any, NamedTuple, Tuple

import numpy as np
import tensorflow as tf

from elastictrainer.errors import RunError
from elastictrainer.profiler.xplane import STEP_EVENT, Trace, read_trace
from elastictrainer.runs import resident
from elastictrainer.steps.compiled_step import CompiledStep
from elastictrainer.steps.timing import step_ms


class Capture(NamedTuple):
    """The trace of some steps, and the ms of as many that ran untraced, (steps,)."""

    trace: Trace
    untraced_ms: np.ndarray


def capture(step: CompiledStep, batch: Tuple[Any, Any], steps: int) -> Capture:
    """Time and trace `step`.

    Args:
        step: a traced step, warm.
        batch: inputs and labels, reused for every step.
        steps: steps to time without a trace, then as many with.

    Raises:
        RunError: the profiler is in use already or wrote no trace.
    """
    untraced_ms = step_ms(step, batch, steps)
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
