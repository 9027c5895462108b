"""The profile renewed from full steps of the run, which TensorFlow's profiler traces."""

from typing import Any, Callable, ContextManager, Optional

import numpy as np

from elastictrainer.profiler.capture import Tracing
from elastictrainer.profiler.charging import renewed
from elastictrainer.profiler.timings import TensorTimings
from elastictrainer.steps.compiled_step import StepCache


class ProfileRenewal:
    """Traces full steps and makes a profile of them; the `Renewal` of an `ElasticPolicy`."""

    def __init__(self, steps: StepCache, keep: Callable[[TensorTimings], None] = lambda timings: None):
        """
        Args:
            steps: the run's compiled steps.
            keep: takes the renewed profile.
        """
        self._steps = steps
        self._keep = keep
        self._tracing: Optional[Tracing] = None

    def begin(self) -> None:
        """Start a trace; RunError where TensorFlow's profiler is in use already."""
        self._tracing = Tracing()

    def step(self) -> ContextManager[None]:
        """Trace a full step that runs inside."""
        assert self._tracing is not None, "begin comes first"
        return self._tracing.step()

    def finish(self, timings: TensorTimings, full_ms: float, step: int, minibatch: Any) -> TensorTimings:
        """End the trace, and make a profile of its steps.

        Args:
            timings: the profile so far.
            full_ms: what a full step takes untraced.
            step: steps done in the run.
            minibatch: inputs and labels like those of the traced steps.
        """
        assert self._tracing is not None, "begin comes first"
        tracing, self._tracing = self._tracing, None
        full_step = self._steps.get(np.ones(len(timings), bool))
        full_step.trace(*minibatch)
        new = renewed(timings, full_step, tracing.finish(), full_ms, step)
        self._keep(new)
        return new

    def abandon(self) -> None:
        """End the trace, and drop it."""
        if self._tracing is not None:
            tracing, self._tracing = self._tracing, None
            tracing.abandon()
