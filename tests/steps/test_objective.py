import numpy as np
import pytest

from elastictrainer import Objective


def line(tf):
    """A module: y = a x + b, with a = 2 and b = 0."""

    class Line(tf.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = tf.Variable(2.0), tf.Variable(0.0)

        def __call__(self, x):
            return self.a * x + self.b

    return Line()


def squared(y, outputs):
    return (outputs - y) ** 2


def test_gradients_of_a_plain_module_by_hand(tf):
    module = line(tf)
    unused = tf.Variable(1.0)
    outputs, loss, gradients = Objective(module, squared).gradients(3.0, 5.0, [module.a, module.b, unused])
    assert float(outputs) == 6.0 and float(loss) == 1.0
    assert [g if g is None else float(g) for g in gradients] == [6.0, 2.0, None]


def test_a_penalty_counts_in_training_only(tf):
    module = line(tf)
    objective = Objective(module, squared, penalty=lambda: 10.0 * module.a)
    assert float(objective(3.0, 5.0, training=True)[1]) == 21.0
    assert float(objective(3.0, 5.0, training=False)[1]) == 1.0
    assert float(objective.gradients(3.0, 5.0, [module.a])[2][0]) == 16.0


def test_loss_and_gradients_are_averaged_together(tf):
    module = line(tf)
    objective = Objective(module, squared, mean=lambda tensors: [0.5 * t for t in tensors])
    _, loss, gradients = objective.gradients(3.0, 5.0, [module.a, tf.Variable(1.0), module.b])
    assert float(loss) == 0.5 and gradients[1] is None
    np.testing.assert_allclose([float(gradients[0]), float(gradients[2])], [3.0, 1.0])


def test_a_model_that_takes_training_is_told(tf):
    layers = tf.keras.layers
    model = tf.keras.Sequential([tf.keras.Input((4,)), layers.Dropout(0.999)])
    objective = Objective(model, lambda y, outputs: tf.reduce_sum(outputs))
    x = tf.ones((1, 4))
    assert float(objective(x, None, training=False)[1]) == pytest.approx(4.0)
    assert float(objective(x, None, training=True)[1]) != pytest.approx(4.0)
