"""Run a training step on this device, and trace it."""

import contextlib
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Iterator, Tuple

import numpy as np
import tensorflow as tf

from elastictrainer.errors import RunError
from elastictrainer.profiler.xplane import STEP_EVENT, Trace, read_trace
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


class Tracing:
    """TensorFlow's profiler, running from the making of this object until `finish` or `abandon`."""

    def __init__(self) -> None:
        """
        Raises:
            RunError: the profiler is in use already.
        """
        self.steps = 0
        options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=2, python_tracer_level=0)
        self._folder = tempfile.TemporaryDirectory(prefix="elastictrainer-trace-")
        try:
            tf.profiler.experimental.start(self._folder.name, options=options)
        except tf.errors.AlreadyExistsError:
            self._folder.cleanup()
            raise RunError("another TensorFlow profile is running in this process; stop it first.") from None

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Mark the ops that run inside as one step."""
        with tf.profiler.experimental.Trace(STEP_EVENT, step_num=self.steps):
            yield
        self.steps += 1

    def finish(self) -> Trace:
        """Stop, and read what was traced; RunError where nothing was."""
        with self._folder:
            tf.profiler.experimental.stop()
            written = sorted(Path(self._folder.name).rglob("*.xplane.pb"))
            if not written:
                raise RunError("TensorFlow's profiler wrote no trace (.xplane.pb).")
            return read_trace(written[-1])

    def abandon(self) -> None:
        """Stop, and forget what was traced."""
        with self._folder:
            tf.profiler.experimental.stop()


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
    tracing = Tracing()
    try:
        for _ in range(steps):
            with tracing.step():
                float(step(*batch))
    except BaseException:
        tracing.abandon()
        raise
    return tracing.finish(), untraced
