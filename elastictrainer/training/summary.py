"""The figures of a run, as in summary.json."""

from typing import Any, Dict

import numpy as np

from elastictrainer.steps.timing import CACHE_READ, CACHE_WRITE
from elastictrainer.training import stopwatch
from elastictrainer.training.state import RunState
from elastictrainer.training.stopwatch import CALIBRATION, VALIDATION


def summary_of(state: RunState) -> Dict[str, Any]:
    """Return the run's figures so far, as in summary.json: docs/run-folder.md has every key with its
    unit.

    `seconds` holds all times by what they were spent on, and others add some of them up: importance's
    includes the full steps timed for comparison.
    `rho_achieved` is the training time over that of full training for the same steps. Training time runs
    from the beginning of each epoch to its last step, and while a checkpoint is written. Measurements
    for comparison, validation, and other callbacks after the last step are not in it.
    """
    progress, watch, policy = state.progress, state.watch, state.policy
    steps, flops = progress.step, progress.flops or None
    full_s, train_s = state.full_training_s(), watch.training()
    predicted = 1.0 if state.scheme == "full" else None
    if policy.profile is not None and steps and not state.by_clock:
        predicted = progress.predicted_ratio / steps
    return {
        "scheme": state.scheme,
        "rho_requested": state.rho,
        "rho_predicted": predicted,
        "rho_achieved": train_s / full_s if full_s else None,
        "train_seconds": train_s,
        "seconds": watch.so_far(),
        "full_training_seconds": full_s,
        "validation_seconds": watch.of(VALIDATION),
        "calibration_seconds": watch.of(CALIBRATION),
        "importance_seconds": watch.of(stopwatch.IMPORTANCE, stopwatch.TIMING),
        "selection_seconds": watch.of(stopwatch.SELECTION),
        "trace_seconds": watch.of(stopwatch.TRACING, stopwatch.FULL_TRACING),
        "head_seconds": watch.of(stopwatch.HEAD),
        "checkpoint_seconds": watch.of(stopwatch.CHECKPOINT),
        "cache_write_seconds": watch.of(CACHE_WRITE),
        "cache_read_seconds": watch.of(CACHE_READ),
        "cached_share": progress.cache_hits / steps if steps else 0.0,
        "cache_bytes": progress.cache_bytes,
        "epochs": progress.epoch,
        "stopped": progress.stopped,
        "steps": steps,
        "selections": len(policy.masks),
        "step_ms_median": float(np.median(progress.recent_ms)) if progress.recent_ms else None,
        "full_step_ms": state.full_step_ms(),
        "flops_per_step": flops / steps if flops else None,
        "flops_per_epoch": flops / progress.epoch if flops and progress.epoch else None,
        "flops_total": flops,
    }
