"""A profile made again while training goes on."""

import dataclasses
import time
from typing import Any, Dict

from elastictrainer.profiler.calibration import with_overlap
from elastictrainer.profiler.charging import timings_from_trace
from elastictrainer.profiler.timings import TensorTimings
from elastictrainer.profiler.xplane import Trace
from elastictrainer.steps.compiled_step import TrainStep


def renewed(old: TensorTimings, step: TrainStep, trace: Trace, step_ms: float, at: int) -> TensorTimings:
    """The profile of a run's own full steps (paper Table 1).

    What the old profile had to measure apart is kept: how much frozen work saves, and what runs beside what. The input pipeline, which runs beside
    these steps, is part of what every step costs.

    Args:
        old: the profile so far, of the same model.
        step: the traced step that trains every tensor.
        trace: of a few real training steps.
        step_ms: what a full step takes untraced.
        at: steps done in the run.
    """
    new = with_overlap(timings_from_trace(step, trace, step_ms), old.overlap)
    metadata: Dict[str, Any] = {
        **old.metadata,
        **new.metadata,
        "created": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "renewed_at_step": at,
        "traced_steps": len(trace.steps),
    }
    return dataclasses.replace(new, frozen_saving=old.frozen_saving, metadata=metadata)
