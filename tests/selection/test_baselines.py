"""The schemes that the paper compares elastic training with: which tensors they train, and what they add."""

import numpy as np
import pytest

from builders import changed_tensors, small_network, tensor_names, weights_of
from elastictrainer.selection import schemes
from policy_run import PolicyRun

ALL = {
    *("stem/kernel", "stem/bias", "stem_bn/gamma", "stem_bn/beta"),
    *("inner/kernel", "inner/bias", "inner_bn/gamma", "inner_bn/beta"),
    *("head/kernel", "head/bias"),
}
TRAINED = {
    "full": ALL,
    "traditional-tl": {"head/kernel", "head/bias"},
    "bn-bias": ALL - {"stem/kernel", "inner/kernel"},
    "prunetrain": ALL,
}


@pytest.mark.parametrize("name", TRAINED)
def test_a_fixed_scheme_trains_exactly_its_tensors(tf, name):
    run = PolicyRun(tf, schemes.create(name), None, steps_per_epoch=2)
    before = weights_of(run.model)
    run.train(1)
    assert changed_tensors(run.model, before) == TRAINED[name]


def test_a_model_inside_a_model_is_opened(tf):
    inner = small_network(tf)
    inputs = tf.keras.Input((8, 8, 3))
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(2, name="top")(inner(inputs)))
    mask = schemes.create("traditional-tl").mask(model)
    assert [name for name, trains in zip(tensor_names(model), mask) if trains] == ["top/kernel", "top/bias"]
    assert schemes.create("bn-bias").mask(model).sum() == 6 + 1 + 2


def test_prunetrain_adds_a_quarter_of_the_loss_and_prunes_faded_channels(tf):
    model = small_network(tf, classes=3)
    scheme = schemes.create("prunetrain")
    penalty = scheme.penalty(model)
    assert float(penalty()) / (float(penalty()) + np.log(3)) == pytest.approx(0.25)
    kernel = model.get_layer("inner").kernel
    kernel.assign(kernel * [1.0, 1e-6, 1.0, 1.0])
    assert scheme.at_interval(model, None) == {"pruned_channels": 1, "channels": 8}
    assert np.all(kernel.numpy()[..., 1] == 0) and np.all(kernel.numpy()[..., 0] != 0)


def test_prunetrain_logs_the_pruned_channels_at_every_interval(tf):
    run = PolicyRun(tf, schemes.create("prunetrain"), None, steps_per_epoch=2).train(2)
    assert run.records == [{"step": 2, "pruned_channels": 0, "channels": 8}]


def test_prunetrain_penalises_nothing_without_a_convolution(tf):
    model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(2)])
    scheme = schemes.create("prunetrain")
    assert float(scheme.penalty(model)()) == 0.0
    assert scheme.at_interval(model, None) == {"pruned_channels": 0, "channels": 0}
