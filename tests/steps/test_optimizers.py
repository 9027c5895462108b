import importlib.util

import numpy as np
import pytest

from elastictrainer import UsageError
from elastictrainer.steps import optimizers
from elastictrainer.steps.keras_compat import KERAS_3


@pytest.mark.skipif(
    not importlib.util.find_spec("tensorflow_addons"), reason="no TensorFlow Addons on this platform"
)
def test_addons_and_keras_make_the_same_update(tf):
    pair = {
        "addons": optimizers.addons_sgdw(0.1, 0.05, 0.9),
        "keras": optimizers.keras_sgdw(0.1, 0.05, 0.9),
    }
    weights = {}
    for name, optimizer in pair.items():
        variables = [tf.Variable([1.0, -2.0, 3.0]), tf.Variable([[0.5]])]
        optimizers.build(optimizer, variables)
        random = np.random.default_rng(0)
        for k in range(8):
            gradients = [tf.constant(random.normal(size=v.shape), tf.float32) for v in variables]
            pairs = list(zip(gradients, variables))
            optimizers.set_rate(optimizer, 0.1 * (1 - k / 10))
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


def test_adamw_decays_what_it_updates_and_nothing_else(tf):
    variables = [tf.Variable([2.0]), tf.Variable([3.0])]
    optimizer = optimizers.make("adamw", 0.1, weight_decay=0.5)
    optimizers.build(optimizer, variables)
    optimizers.apply(optimizer, [(tf.constant([1.0]), variables[0])])
    np.testing.assert_allclose(variables[0].numpy(), [2.0 - 0.1 * 0.5 * 2.0 - 0.1], rtol=1e-5)
    np.testing.assert_array_equal(variables[1].numpy(), [3.0])


@pytest.mark.parametrize("make", ["sgd", "keras_sgdw", "adam", "adamw"])
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
    with pytest.raises(UsageError, match="Did you mean 'sgd'.*sgd, adam, adamw"):
        optimizers.make("sdg")


@pytest.mark.skipif(KERAS_3, reason="Keras 2 alone compiles updates")
def test_updates_are_not_compiled_by_xla(tf):
    """As Keras 2 does by itself where it sees a GPU: the profiler could not tell the tensors apart."""
    variable, optimizer = tf.Variable([1.0]), tf.keras.optimizers.Adam(0.1)
    optimizer.jit_compile = True
    optimizers.build(optimizer, [variable])

    @tf.function
    def update():
        optimizers.apply(optimizer, [(tf.ones(1), variable)])

    library = update.get_concrete_function().graph.as_graph_def().library
    assert not [f for f in library.function if f.attr["_XlaMustCompile"].b]
