"""The profile of a run that was given none, or one without the costs of the cache."""

from typing import Any, Optional, Tuple

import tensorflow as tf

from elastictrainer.profiler.profile import Profile
from elastictrainer.profiler.profile_model import profile_model
from elastictrainer.reuse.costs import with_reuse_costs
from elastictrainer.runs.log import LOG
from elastictrainer.steps.keras_objective import Minibatch
from elastictrainer.steps.objective import Objective
from elastictrainer.training.state import RunState
from elastictrainer.training.stopwatch import CALIBRATION


def make_profile(state: RunState, objective: Objective, minibatch: Minibatch, metrics: Any) -> Profile:
    """Profile the run's model on `minibatch`; a tenth of a short run's time at most."""
    with state.watch.lap(CALIBRATION):
        LOG.info("profiling the model")
        profile = profile_model(
            state.model,
            objective,
            minibatch,
            state.model.optimizer,
            metrics=(metrics,),
            training_steps=state.epochs * state.steps_per_epoch,
        )
    LOG.info(f"full step {profile.full_ms:.1f} ms, rho_min {profile.rho_min:.3f}")
    return profile


def check_cacheable(
    state: RunState,
    profile: Optional[Profile],
    objective: Objective,
    minibatch: Minibatch,
    spec: Any,
    deterministic: bool,
) -> Tuple[bool, Optional[Profile]]:
    """Return whether activations can be cached, and the profile, which then has the costs of that.

    Args:
        state: of the run; a line says why not.
        profile: the profile; None: nothing is predicted.
        objective: of the run's model.
        minibatch: of a full size.
        spec: tf.TensorSpecs of any minibatch.
        deterministic: times measured in this run must not affect the selections.
    """
    parts = [part for part in tf.nest.flatten(spec) if part is not None]
    if not all(isinstance(part, tf.TensorSpec) for part in parts):
        LOG.info("not cached: the data has ragged or sparse parts")
        return False, profile
    if profile is None or profile.reuse is not None:
        return True, profile
    if state.workers or deterministic:  # each run and each process would measure something else
        LOG.info("not cached: the profile does not have the costs of a cache (et-profile measures them)")
        return False, profile
    with state.watch.lap(CALIBRATION):
        return True, with_reuse_costs(profile, objective, state.model.optimizer, minibatch)
