"""A selection's step as a whole, writing the cache, and cached."""

from dataclasses import replace

import numpy as np
import pytest

from builders import quick_profile
from elastictrainer.profiler.calibration import middle
from elastictrainer.steps.kinds import CACHE_READ, CACHE_WRITE, FULL, PLAIN
from networks import augmented, residual


@pytest.mark.parametrize("network", [residual, augmented], ids=lambda n: n.__name__)
def test_all_kinds_of_steps_run_and_leave_no_trace(tf, network):
    from elastictrainer.cache.costs import with_cache_costs
    from elastictrainer.cache.step_variants import StepVariants
    from elastictrainer.steps import optimizers
    from elastictrainer.steps.objective import Objective, classification_loss

    model = network(tf)
    optimizer = optimizers.make("sgd", 0.1)
    optimizers.build(optimizer, model.trainable_variables)
    batch = tf.random.uniform((4, *model.input_shape[1:])), tf.constant([0, 1, 2, 0], tf.int64)
    objective = Objective(model, classification_loss())
    profile = with_cache_costs(quick_profile(model, batch, optimizer=optimizer), objective, optimizer, batch)
    # On a busy machine reading seems to take longer than these few layers do.
    profile = replace(profile, cache=replace(profile.cache, read_ms_per_mb=0.0))
    before = [v.numpy() for v in [*model.variables, *optimizers.variables_of(optimizer)]]
    steps = StepVariants(profile, middle(profile), objective, optimizer, batch)
    found = steps.ratios(0.1, warmup=20)  # more than the cache holds: it begins again
    assert all(steps.get(kind).runs >= 20 for kind in (FULL, PLAIN, CACHE_WRITE, CACHE_READ))
    assert found.keys() == {PLAIN, CACHE_WRITE, CACHE_READ} and min(found.values()) > 0
    steps.close()
    for value, variable in zip(before, [*model.variables, *optimizers.variables_of(optimizer)]):
        np.testing.assert_array_equal(value, variable.numpy())
