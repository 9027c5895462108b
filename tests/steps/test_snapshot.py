import numpy as np
import pytest

from elastictrainer.steps.snapshot import StoredValues, preserve_variables


def test_variables_are_as_before_also_after_an_error(tf):
    variables = [tf.Variable([1.0, 2.0]), tf.Variable(3, dtype=tf.int64)]
    with pytest.raises(KeyError):
        with preserve_variables(variables):
            variables[0].assign([0.0, np.nan])
            variables[1].assign_add(4)
            raise KeyError
    assert variables[0].numpy().tolist() == [1.0, 2.0] and int(variables[1]) == 3


def test_values_in_a_file_are_restored_bit_for_bit(tf, tmp_path):
    values = [[1.5, -0.0, np.nan], np.zeros((0, 2)), 7.0, np.arange(6.0).reshape(2, 3)]
    variables = [tf.Variable(value, dtype=tf.float32) for value in values]
    stored = StoredValues(variables, tmp_path)
    before = [v.numpy().tobytes() for v in variables]
    for variable in variables:
        variable.assign_add(tf.ones_like(variable))
    assert stored.read(3).tolist() == [[0, 1, 2], [3, 4, 5]]
    stored.restore()
    assert [v.numpy().tobytes() for v in variables] == before
    assert not list(tmp_path.iterdir()), "the file has no name, so that it goes with the process"
    stored.close()


def test_variables_can_be_restored_within_the_block(tf):
    first, second = tf.Variable([1.0]), tf.Variable([2.0])
    with preserve_variables([first, second, first]) as restore:
        first.assign([5.0])
        second.assign([6.0])
        (value,) = restore([first])
        assert first.numpy() == value.numpy() == [1.0] and second.numpy() == [6.0]
    assert second.numpy() == [2.0]
