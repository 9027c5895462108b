"""Profiles of real models on this machine."""

import importlib

import numpy as np
import pytest

from builders import ArrayData, quick_profile, small_network, tensor_names
from elastictrainer import UsageError
from elastictrainer.profiler.calibration import random_masks


def test_profile_of_a_small_network(tf):
    model = small_network(tf)
    batch = next(ArrayData(tf).train(0))
    before = [v.numpy() for v in model.variables]
    profile = quick_profile(model, batch, warmup_steps=2, steps=4, validate=3, metadata={"model": "small"})
    assert profile.names == tuple(tensor_names(model))
    assert profile.metadata["coverage"] > 0.95 and profile.metadata["model"] == "small"
    assert profile.full_ms == pytest.approx(profile.metadata["step_ms"])
    assert np.all(profile.t_dw > 0) and not profile.estimated.any() and profile.connected.all()
    assert 0 < profile.rho_min < 1 and 0 < profile.forward_share < 1
    # From the output inwards: the head, then the inner convolution, then the stem.
    depth = {name.split("/")[0]: k for k, name in enumerate(profile.names[i] for i in profile.order)}
    assert depth["head"] < depth["inner_bn"] < depth["inner"] < depth["stem_bn"] < depth["stem"]
    assert len(profile.validation) == 3 and np.all(np.isfinite(profile.validation_errors))
    for variable, value in zip(model.variables, before):
        np.testing.assert_array_equal(variable.numpy(), value)


def test_a_short_run_does_not_wait_long_for_its_profile(tf):
    model, batch = small_network(tf), next(ArrayData(tf).train(0))
    short = quick_profile(model, batch, calibrate_s=60.0, training_steps=20)
    assert short.metadata["calibration_seconds"] == pytest.approx(2e-3 * short.metadata["step_ms"])
    long = quick_profile(model, batch, calibrate_s=0.1, training_steps=10**9)
    assert long.metadata["calibration_seconds"] == 0.1


def test_a_slow_device_makes_a_profile_of_few_steps(tf):
    model, batch = small_network(tf), next(ArrayData(tf).train(0))
    profile = quick_profile(model, batch, steps=8, calibrate_s=5.0, allowed_s=0.0)
    assert profile.metadata["traced_steps"] == 2 and profile.metadata["calibration_seconds"] == 0
    assert profile.full_ms > 0 and profile.dw.amount.sum() > 0


@pytest.mark.parametrize("graphs, calibrates", [(0.0, True), (1e6, False)])
def test_calibration_has_a_share_of_the_time_that_its_graphs_leave(tf, monkeypatch, graphs, calibrates):
    module = importlib.import_module("elastictrainer.profiler.profile_model")
    monkeypatch.setattr(module, "_CALIBRATION_GRAPHS", graphs)
    monkeypatch.setattr(module, "_CALIBRATIONS", 100.0)
    model, batch = small_network(tf), next(ArrayData(tf).train(0))
    profile = quick_profile(model, batch, calibrate_s=60.0, allowed_s=300.0)
    seconds = profile.metadata["calibration_seconds"]
    assert 2 <= seconds < 3 if calibrates else seconds == 0
    assert profile.full_ms > 0 and (profile.overlap == 0 or calibrates)


def test_any_keras_model_token_classifier_with_a_gru_and_an_unused_tensor(tf):
    class Classifier(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.embedding = tf.keras.layers.Embedding(50, 8)
            self.gru = tf.keras.layers.GRU(8)
            self.head = tf.keras.layers.Dense(3)
            self.unused = self.add_weight(name="unused", shape=(4,))

        def call(self, tokens, training=False):
            return self.head(self.gru(self.embedding(tokens), training=training))

    model = Classifier()
    tokens = tf.random.uniform((4, 10), 0, 50, tf.int32)
    model(tokens)
    profile = quick_profile(model, (tokens, tf.constant([0, 1, 2, 0])))
    unused = [name for name, connected in zip(profile.names, profile.connected) if not connected]
    assert len(unused) == 1 and "unused" in unused[0]
    assert np.all(profile.t_dw[profile.connected] > 0)
    assert np.isinf(profile.alone_ms[~profile.connected]).all() and profile.rho_min < 1
    assert all(
        mask[profile.connected].any() and not mask[~profile.connected].any()
        for mask in random_masks(profile, 5, 0)
    )


def test_model_with_nothing_to_train_is_refused(tf):
    model = small_network(tf)
    model.trainable = False
    with pytest.raises(UsageError, match="no trainable tensor"):
        quick_profile(model, next(ArrayData(tf).train(0)))


def test_a_plain_module_is_profiled(tf):
    class Linear(tf.Module):
        def __init__(self):
            super().__init__()
            self.kernel = tf.Variable(tf.random.normal((192, 3)), name="kernel")
            self.bias = tf.Variable(tf.zeros(3), name="bias")

        def __call__(self, x):
            return tf.reshape(x, (-1, 192)) @ self.kernel + self.bias

    profile = quick_profile(Linear(), next(ArrayData(tf).train(0)))
    assert set(profile.names) == {"kernel", "bias"} and profile.full_ms > 0
