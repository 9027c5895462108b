"""The learning rate as a function of the used share of the budget."""

import numpy as np
import pytest

from elastictrainer import UsageError
from elastictrainer.steps import optimizers
from elastictrainer.steps.keras_compat import own_steps
from elastictrainer.steps.rates import RateSchedule


def test_a_cosine_falls_from_the_highest_rate_to_zero():
    schedule = RateSchedule(0.2)
    assert [schedule.rate(s) for s in (0.0, 0.5, 1.0)] == pytest.approx([0.2, 0.1, 0.0])
    assert schedule.rate(-0.1) == 0.2 and schedule.rate(1.3) == pytest.approx(0.0)


def test_a_warm_up_rises_from_above_zero_to_the_highest_rate():
    schedule = RateSchedule(1.0, "cosine", warmup=0.2)
    rising = [schedule.rate(s) for s in np.linspace(0, 0.2, 5)]
    assert 0 < rising[0] < 0.1 and rising == sorted(rising) and rising[-1] == 1.0
    assert schedule.rate(0.6) == pytest.approx(0.5) and schedule.rate(1.0) == pytest.approx(0.0)


def test_a_constant_rate_stays():
    schedule = RateSchedule(0.3, "constant", warmup=0.5)
    assert schedule.rate(0.0) < schedule.rate(0.5) == schedule.rate(1.0) == 0.3


@pytest.mark.parametrize(
    "values, message", [({"shape": "cosin"}, "cosine"), ({"warmup": 1.0}, "leaves nothing")]
)
def test_rate_schedule_refuses_a_shape_or_warm_up_out_of_range(values, message):
    with pytest.raises(UsageError, match=message):
        RateSchedule(0.1, **values)


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_an_optimizer_trains_at_the_rate_that_is_set_as_one_made_with_it(tf, name):
    def trained(first, later):
        tf.keras.utils.set_random_seed(0)
        variable = tf.Variable([1.0, -2.0, 0.5])
        optimizer = optimizers.make(name, first, weight_decay=0.1)
        optimizers.build(optimizer, [variable])
        if later:
            optimizers.set_rate(optimizer, later)
        step = tf.function(lambda: own_steps.apply(optimizer, [(tf.constant([0.3, 0.1, -0.2]), variable)]))
        step()
        assert optimizers.learning_rate_of(optimizer) == pytest.approx(later or first)
        return variable.numpy()

    np.testing.assert_allclose(trained(0.1, 0.02), trained(0.02, None), rtol=1e-6)
