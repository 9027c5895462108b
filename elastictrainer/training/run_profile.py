"""The profile of a run that was given none, or one without the costs of the cache."""

from typing import Any, Optional

import tensorflow as tf

from elastictrainer.cache import costs
from elastictrainer.profiler.profile import Profile
from elastictrainer.profiler.profile_model import profile_model
from elastictrainer.runs.log import LOG
from elastictrainer.steps.compiled_step import CompiledSteps
from elastictrainer.steps.objective import Minibatch
from elastictrainer.training.state import RunState
from elastictrainer.training.stopwatch import CALIBRATION


def profile_for_fit(state: RunState, steps: CompiledSteps, minibatch: Minibatch) -> Profile:
    """Profile the run's model on `minibatch`; a tenth of a short run's time at most."""
    with state.watch.lap(CALIBRATION):
        LOG.info("profiling the model")
        profile = profile_model(
            state.model,
            steps.objective,
            minibatch,
            state.model.optimizer,
            metrics=tuple(steps.metrics),
            training_steps=state.epochs * state.steps_per_epoch,
        )
    LOG.info(f"full step {profile.full_ms:.1f} ms, rho_min {profile.rho_min:.3f}")
    return profile


def why_uncacheable(state: RunState, profile: Optional[Profile], spec: Any, deterministic: bool) -> str:
    """Return why activations cannot be cached; empty where they can.

    Args:
        state: of the run.
        profile: None: nothing is predicted.
        spec: tf.TensorSpecs of any minibatch.
        deterministic: times measured in this run must not affect the selections.
    """
    parts = [part for part in tf.nest.flatten(spec) if part is not None]
    if not all(isinstance(part, tf.TensorSpec) for part in parts):
        return "the data has ragged or sparse parts"
    measured_here = profile is not None and profile.cache is None
    if measured_here and deterministic:
        return "the profile does not have the costs of a cache (et-profile measures them)"
    return ""


def with_cache_costs(
    state: RunState, profile: Optional[Profile], steps: CompiledSteps, minibatch: Minibatch
) -> Optional[Profile]:
    """Return a profile with the costs of a cache, which are measured on `minibatch` where it lacks them."""
    if profile is None or profile.cache is not None:
        return profile
    with state.watch.lap(CALIBRATION):
        return costs.with_cache_costs(profile, steps.objective, state.model.optimizer, minibatch)
