"""Zeros that variables share, until one of them is written; and values that are restored."""

import numpy as np
import pytest

from builders import address
from elastictrainer.steps import optimizers
from elastictrainer.steps.keras_compat import own_steps
from elastictrainer.steps.keras_compat.optimizer import slots
from elastictrainer.steps.keras_compat.variables import share_zeros, zeros_like
from elastictrainer.steps.snapshot import preserve_variables


def test_variables_share_zeros_until_one_is_updated(tf):
    variables = [tf.Variable(tf.zeros((16, size))) for size in (40, 4, 40)]
    for variable in variables:
        share_zeros(variable)
    assert len({address(v) for v in variables}) == 1
    variables[0].assign_add(tf.ones((16, 40)))
    assert variables[0].numpy().min() == 1
    assert not variables[1].numpy().any() and not variables[2].numpy().any()
    assert not zeros_like(variables[0]).numpy().any()
    variables[0].assign(zeros_like(variables[0]))
    assert len({address(v) for v in variables}) == 1


@pytest.mark.parametrize("value", [1.0, -0.0, float("nan")])
def test_a_variable_with_another_bit_keeps_its_own_memory(tf, value):
    variable = tf.Variable([0.0] * 31 + [value])
    before = variable.numpy().tobytes()
    share_zeros(variable)
    assert variable.numpy().tobytes() == before


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_a_slot_has_memory_of_its_own_when_its_tensor_has_trained(tf, name):
    variables = [tf.Variable(tf.ones((64, 64))) for _ in range(3)]
    optimizer = optimizers.make(name)

    def own():
        """How many slots of each tensor do not share."""
        shared = address(tf.Variable(zeros_like(variables[0])))
        found = {id(v): 0 for v in variables}
        for _, variable, slot in slots(optimizer, variables):
            found[id(variable)] += address(slot) != shared
        return list(found.values())

    optimizers.build(optimizer, variables)
    optimizers.prepare_freezing(optimizer, variables)
    assert own() == [0, 0, 0]
    own_steps.apply(optimizer, [(tf.ones((64, 64)), variables[1])])
    count = 1 if name == "sgd" else 2
    assert own() == [0, count, 0]
    assert optimizers.slot_bytes(optimizer, variables) == [count * 4 * 64 * 64] * 3
    optimizers.reset_slots(optimizer, variables)
    assert own() == [0, 0, 0]


@pytest.mark.parametrize("in_file", [False, True])
def test_variables_can_be_restored_within_the_block_and_are_after_an_error_bit_for_bit(tf, tmp_path, in_file):
    values = [[1.5, -0.0, np.nan], np.zeros((0, 2)), 7.0, np.arange(6.0).reshape(2, 3)]
    variables = [tf.Variable(value, dtype=tf.float32) for value in values]
    before = [v.numpy().tobytes() for v in variables]

    def change():
        for variable in variables:
            variable.assign_add(tf.ones_like(variable))

    given = [*variables, variables[0]]
    with pytest.raises(KeyError), preserve_variables(given, tmp_path if in_file else None) as snapshot:
        change()
        assert np.asarray(snapshot[3]).tolist() == [[0, 1, 2], [3, 4, 5]]
        snapshot.restore()
        assert [v.numpy().tobytes() for v in variables] == before
        change()
        assert not list(tmp_path.iterdir()), "the file has no name, so that it goes with the process"
        raise KeyError
    assert [v.numpy().tobytes() for v in variables] == before
