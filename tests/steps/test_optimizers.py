import importlib.util

import numpy as np
import pytest

from elastictrainer import UsageError
from elastictrainer.steps import optimizers


@pytest.mark.skipif(
    not importlib.util.find_spec("tensorflow_addons"), reason="no TensorFlow Addons on this platform"
)
def test_addons_and_keras_make_the_same_update(tf):
    def schedule(rate):
        return tf.keras.optimizers.schedules.CosineDecay(rate, 10)

    pair = {
        "addons": optimizers.addons_sgdw(schedule(0.1), schedule(0.1 * 0.05), 0.9),
        "keras": optimizers.keras_sgdw(schedule(0.1), 0.05, 0.9),
    }
    weights = {}
    for name, optimizer in pair.items():
        variables = [tf.Variable([1.0, -2.0, 3.0]), tf.Variable([[0.5]])]
        optimizers.build(optimizer, variables)
        random = np.random.default_rng(0)
        for k in range(8):
            gradients = [tf.constant(random.normal(size=v.shape), tf.float32) for v in variables]
            pairs = list(zip(gradients, variables))
            optimizers.apply(optimizer, pairs[:1] if k % 3 == 2 else pairs)  # the second rests now and then
        weights[name] = [v.numpy() for v in variables]
    for a, b in zip(weights["addons"], weights["keras"]):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_update_by_hand(tf):
    variable = tf.Variable([2.0])
    optimizer = optimizers.make("sgd", learning_rate=0.1, weight_decay=0.5, momentum=0.9)
    optimizers.build(optimizer, [variable])
    w, momentum = 2.0, 0.0
    for gradient in (1.0, -0.5, 2.0):
        optimizer.apply_gradients([(tf.constant([gradient]), variable)])
        w -= 0.1 * 0.5 * w
        momentum = 0.9 * momentum - 0.1 * gradient
        w += momentum
    np.testing.assert_allclose(variable.numpy(), [w], rtol=1e-6)


@pytest.mark.parametrize("make", ["sgd", "keras_sgdw", "adam"])
def test_resting_tensors_lose_their_momentum_and_the_others_keep_it(tf, make):
    def build_and_step():
        variables = [tf.Variable([1.0, 2.0]), tf.Variable([3.0])]
        optimizer = (
            optimizers.keras_sgdw(0.1, 0.0, 0.9) if make == "keras_sgdw" else optimizers.make(make, 0.1, 0.0)
        )
        optimizers.build(optimizer, variables)
        optimizers.apply(optimizer, [(tf.ones_like(v), v) for v in variables])
        return optimizer, variables

    still = lambda variables: [(tf.zeros_like(v), v) for v in variables]  # noqa: E731
    optimizer, variables = build_and_step()
    optimizers.forget_momentum(optimizer, variables[:1])
    before = [v.numpy() for v in variables]
    optimizers.apply(optimizer, still(variables))
    np.testing.assert_array_equal(variables[0].numpy(), before[0])  # without a gradient nothing moves it
    assert np.all(variables[1].numpy() < before[1])


def test_unknown_optimizer_names_the_valid_ones(tf):
    with pytest.raises(UsageError, match="Did you mean 'sgd'.*sgd, adam"):
        optimizers.make("sdg")
