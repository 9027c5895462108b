"""Which ops of a step are frozen, what can be stored, and the cut behind the last of them."""

from types import SimpleNamespace

import numpy as np
import pytest

from elastictrainer.cache.cut import (
    frozen_ops,
    is_storable,
    last_frozen_tensors,
    minibatch_mb,
    row_bytes,
    stored_dtype,
)


def ops_of(tf, shortcut=False):
    """Those of a step with a frozen weight before a dropout and behind it, and a weight that trains.

    `shortcut`: what trains reads the dropout's result as well.
    """
    frozen, trained = tf.Variable(2.0), tf.Variable(3.0)

    @tf.function(autograph=False)
    def step(x, y):
        features = tf.multiply(x, frozen.read_value(), name="features")
        drawn = tf.random.uniform(tf.shape(features, name="shape"), name="draw")
        mask = tf.floor(drawn + 0.5, name="mask")
        relu = tf.nn.relu(tf.multiply(features, mask, name="dropped"), name="relu")
        later = tf.multiply(relu, frozen.read_value(), name="later")
        output = tf.multiply(later, trained.read_value(), name="output")
        loss = tf.reduce_sum(output + (trained * relu if shortcut else 0.0) - y, name="loss")
        trained.assign_sub(loss)
        return loss

    graph = step.get_concrete_function(tf.TensorSpec((None,)), tf.TensorSpec((None,))).graph
    x, y = [tensor for tensor in graph.inputs if tensor.dtype != tf.resource]
    return frozen_ops(graph.get_operations(), graph.as_graph_def().library, [x], [y], [])


@pytest.fixture(scope="module")
def ops(tf):
    return ops_of(tf)


def op_names(ops, positions):
    return {ops.operations[k].name.split("/")[0] for k in positions}


@pytest.mark.parametrize(
    "shortcut, unstorable, stored, once, again",
    [
        (False, set(), "later", {"features", "draw", "dropped", "relu", "later"}, set()),
        (False, {"later"}, "features", {"features"}, {"draw", "dropped", "relu", "later"}),
        (False, {"later", "features"}, "x", set(), {"features", "draw", "dropped", "relu", "later"}),
        (True, set(), "features", {"features"}, {"draw", "dropped", "relu", "later"}),
    ],
    ids=["the last one", "it cannot be stored, dropout must not", "the inputs", "one draw for both ends"],
)
def test_the_last_frozen_tensor_that_may_be_stored_is(tf, shortcut, unstorable, stored, once, again):
    """What comes behind it is computed again; no draw is made for the cache and again in a cached step."""
    ops = ops_of(tf, shortcut)
    cut = last_frozen_tensors(ops, ops.moving, lambda tensor: tensor.op.name not in unstorable)
    assert [tensor.op.name for tensor in cut.tensors] == [stored]
    assert once <= op_names(ops, cut.done_once) and again <= op_names(ops, cut.recomputed)
    assert not cut.done_once & cut.recomputed


def test_an_op_is_frozen_where_it_depends_on_inputs_and_on_nothing_that_changes(ops):
    frozen, moving = op_names(ops, ops.frozen), op_names(ops, ops.moving)
    assert {"x", "features", "shape", "draw", "mask", "dropped", "relu", "later"} <= frozen
    assert {"y", "output", "loss"} <= moving and not frozen & moving


def test_shapes_masks_and_what_dropout_mixes_up_to_the_next_weight_are_not_stored(ops):
    unstored = op_names(ops, ops.unstored)
    assert {"shape", "draw", "mask", "dropped", "relu"} <= unstored
    assert not {"x", "features", "later"} & unstored and op_names(ops, ops.random) == {"draw"}


def tensor(tf, shape, dtype="float32"):
    return SimpleNamespace(shape=tf.TensorShape(shape), dtype=tf.as_dtype(dtype))


def test_what_has_a_row_for_each_example_is_storable(tf):
    for shape in ((4, 3), (None, 3), (4,)):
        assert is_storable(tensor(tf, shape), 4)
    for shape in ((), (5, 3), (4, None), None):
        assert not is_storable(tensor(tf, shape), 4)
    assert is_storable(tensor(tf, (4, 3), "bool"), 4) and not is_storable(tensor(tf, (4, 3), "string"), 4)


@pytest.mark.parametrize(
    "dtype, floats, stored",
    [
        ("float32", "float16", "float16"),
        ("float64", "float16", "float16"),
        ("float64", "float32", "float64"),
        ("float16", "float32", "float16"),
        ("bfloat16", "float32", "float32"),
        ("int64", "float16", "int64"),
    ],
)
def test_wide_numbers_are_stored_as_asked(tf, dtype, floats, stored):
    assert stored_dtype(tf.as_dtype(dtype), floats) == stored


def test_sizes_of_rows_and_minibatches(tf):
    features = tensor(tf, (4, 8, 2))
    assert (row_bytes(features, "float16"), row_bytes(features, "float32")) == (32, 64)
    assert (minibatch_mb(features, 4), minibatch_mb(features, 5)) == (pytest.approx(4 * 64e-6), np.inf)
