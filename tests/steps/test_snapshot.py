import numpy as np
import pytest

from elastictrainer.steps.snapshot import preserve_variables


def test_variables_are_as_before_also_after_an_error(tf):
    variables = [tf.Variable([1.0, 2.0]), tf.Variable(3, dtype=tf.int64)]
    with pytest.raises(KeyError):
        with preserve_variables(variables):
            variables[0].assign([0.0, np.nan])
            variables[1].assign_add(4)
            raise KeyError
    assert variables[0].numpy().tolist() == [1.0, 2.0] and int(variables[1]) == 3


def test_variables_can_be_restored_within_the_block(tf):
    first, second = tf.Variable([1.0]), tf.Variable([2.0])
    with preserve_variables([first, second, first]) as restore:
        first.assign([5.0])
        second.assign([6.0])
        (value,) = restore([first])
        assert first.numpy() == value.numpy() == [1.0] and second.numpy() == [6.0]
    assert second.numpy() == [2.0]
