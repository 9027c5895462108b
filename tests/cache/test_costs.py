import functools
from dataclasses import replace

import numpy as np
import pytest

from builders import quick_profile, tensor_names
from elastictrainer import Profile
from elastictrainer.cache.costs import TimedVariants, with_cache_costs
from elastictrainer.profiler.calibration import middle
from elastictrainer.steps import optimizers
from elastictrainer.steps.compiled_step import CompiledStep
from elastictrainer.steps.objective import Objective, classification_loss
from elastictrainer.steps.timing import CACHE_READ, CACHE_WRITE, FULL, PLAIN
from networks import augmented, residual


def ready(tf, model):
    """What profiles a model: its objective, a built optimizer, a minibatch."""
    optimizer = optimizers.make("sgd", 0.1)
    optimizers.build(optimizer, model.trainable_variables)
    batch = tf.random.uniform((4, *model.input_shape[1:])), tf.constant([0, 1, 2, 0], tf.int64)
    return Objective(model, classification_loss()), optimizer, batch


@pytest.fixture
def profiled(tf):
    """Makes the profile of a network, without and with the costs of the activation cache."""

    def make(model):
        objective, optimizer, batch = ready(tf, model)
        before = [v.numpy() for v in model.variables]
        profile = quick_profile(model, batch, optimizer=optimizer)
        with_costs = with_cache_costs(profile, objective, optimizer, batch)
        for value, variable in zip(before, model.variables):
            np.testing.assert_array_equal(value, variable.numpy())
        return profile, with_costs

    return make


def test_most_forward_work_can_be_done_once_and_a_file_keeps_what_it_costs(tf, profiled, tmp_path):
    profile, costs = profiled(residual(tf))
    forward, once = profile.forward, costs.cache.once.amount.sum()
    of_tensors_ms = forward.amount[forward.has_members()].sum()  # the rest is mostly waiting here
    assert 0.3 * of_tensors_ms < once <= forward.amount.sum() * (1 + 1e-9)
    assert costs.with_cache.rho_min <= profile.rho_min * (1 + 1e-9)
    costs.save(tmp_path / "profile.json")
    read = Profile.load(tmp_path / "profile.json")
    mask = np.arange(len(costs)) > len(costs) // 2
    assert read.with_cache.step_time(mask) == pytest.approx(costs.with_cache.step_time(mask))
    assert read.cache_write_time(mask) == pytest.approx(costs.cache_write_time(mask))


def test_a_cut_behind_a_wide_layer_stores_less(tf, profiled):
    layers = tf.keras.layers
    inputs = tf.keras.Input((8, 8, 3))
    x = layers.Conv2D(8, 3, name="wide")(inputs)
    x = layers.Dense(16, name="narrow")(layers.GlobalAveragePooling2D()(x))
    model = tf.keras.Model(inputs, layers.Dense(3, name="head")(x))
    _, costs = profiled(model)
    mb = dict(zip(tensor_names(model), costs.cache.cut_mb))
    assert mb["head/kernel"] == pytest.approx(4 * 16 * 4e-6)
    assert mb["narrow/kernel"] == pytest.approx(4 * 8 * 4e-6)
    assert mb["wide/kernel"] == pytest.approx(4 * 8 * 8 * 3 * 4e-6)


def test_augmentation_is_done_once_whatever_trains(tf, profiled):
    _, costs = profiled(augmented(tf))
    once = costs.cache.once
    assert once.amount[~once.has_members()].sum() > 0


def test_forward_work_done_once_is_at_most_that_of_a_step(tf, profiled):
    """A convolution's time is measured with the bias behind it, and is not to be charged once more."""
    convolution = functools.partial(tf.keras.layers.Conv2D, 32, 3, padding="same", activation="relu")
    layers = [convolution(input_shape=(24, 24, 3)), *(convolution() for _ in range(3))]
    head = [tf.keras.layers.GlobalAveragePooling2D(), tf.keras.layers.Dense(3)]
    _, profile = profiled(tf.keras.Sequential([*layers, *head]))
    assert 0 < profile.cache.once.amount.sum() <= 1.001 * profile.forward.amount.sum()
    free = dict.fromkeys(("write_ms", "write_ms_per_mb", "read_ms", "read_ms_per_mb"), 0.0)
    profile = replace(profile, cache=replace(profile.cache, **free))
    assert 0 < profile.with_cache.rho_min < profile.rho_min


def test_a_recurrent_layers_loop_has_the_time_of_its_layer(tf, profiled):
    """No op statistics count what a loop computes; all of it can be done once."""
    layers = tf.keras.layers
    inputs = tf.keras.Input((24, 8))
    x = layers.GRU(16, name="outer")(layers.GRU(16, return_sequences=True, name="inner")(inputs))
    profile, costs = profiled(tf.keras.Model(inputs, layers.Dense(3, name="head")(x)))
    for layer in (range(3), range(3, 6)):  # kernel, recurrent kernel and bias
        forward_ms, saved_ms = (
            sum(ms for members, ms in groups.sets() if members and max(members) in layer)
            for groups in (profile.forward, costs.cache.once)
        )
        assert saved_ms == pytest.approx(forward_ms, rel=0.1)


@pytest.mark.parametrize("network", [residual, pytest.param(augmented, marks=pytest.mark.slow)])
def test_all_kinds_of_steps_run_and_leave_no_trace(tf, network):
    model = network(tf)
    objective, optimizer, batch = ready(tf, model)
    profile = with_cache_costs(quick_profile(model, batch, optimizer=optimizer), objective, optimizer, batch)
    # On a busy machine reading seems to take longer than these few layers do.
    profile = replace(profile, cache=replace(profile.cache, read_ms_per_mb=0.0))
    before = [v.numpy() for v in [*model.variables, *optimizers.variables_of(optimizer)]]
    full = CompiledStep(objective, optimizer, model.trainable_variables)
    full.trace(*batch)
    steps = TimedVariants(profile, middle(profile), full, batch)
    storage, read = steps.cache.storage, set()
    storage.read = lambda rows, unspied=storage.read: read.update(rows.tolist()) or unspied(rows)
    found = steps.ratios(0.1, warmup=20)  # more than the cache holds: it begins again
    assert read == set(range(storage.capacity)), "each minibatch is outside the processor's caches"
    assert all(steps.get(kind).runs >= 20 for kind in (FULL, PLAIN, CACHE_WRITE, CACHE_READ))
    assert found.keys() == {PLAIN, CACHE_WRITE, CACHE_READ} and min(found.values()) > 0
    steps.close()
    for value, variable in zip(before, [*model.variables, *optimizers.variables_of(optimizer)]):
        np.testing.assert_array_equal(value, variable.numpy())
