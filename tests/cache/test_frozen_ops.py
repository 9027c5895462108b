"""The ops of a small step: which are frozen, which move, and which are not stored."""

import pytest

from elastictrainer.cache.frozen_ops import frozen_ops


@pytest.fixture
def ops(tf):
    """Those of a step with a frozen weight before a dropout and behind it, and a weight that trains."""
    frozen, trained = tf.Variable(2.0), tf.Variable(3.0)

    @tf.function(autograph=False)
    def step(x, y):
        features = tf.multiply(x, frozen.read_value(), name="features")
        drawn = tf.random.uniform(tf.shape(features, name="shape"), name="draw")
        mask = tf.floor(drawn + 0.5, name="mask")
        relu = tf.nn.relu(tf.multiply(features, mask, name="dropped"), name="relu")
        later = tf.multiply(relu, frozen.read_value(), name="later")
        loss = tf.reduce_sum(tf.multiply(later, trained.read_value(), name="output") - y, name="loss")
        trained.assign_sub(loss)
        return loss

    graph = step.get_concrete_function(tf.TensorSpec((None,)), tf.TensorSpec((None,))).graph
    x, y = [tensor for tensor in graph.inputs if tensor.dtype != tf.resource]
    return frozen_ops(graph.get_operations(), graph.as_graph_def().library, [x], [y], [])


def names(ops, positions):
    return {ops.operations[k].name.split("/")[0] for k in positions}


def test_an_op_is_frozen_where_it_depends_on_inputs_and_on_nothing_that_changes(ops):
    frozen, moving = names(ops, ops.frozen), names(ops, ops.moving)
    assert {"x", "features", "shape", "draw", "mask", "dropped", "relu", "later"} <= frozen
    assert {"y", "output", "loss"} <= moving and not frozen & moving


def test_what_dropout_mixes_is_not_stored_up_to_the_next_weight(ops):
    unstored = names(ops, ops.unstored)
    assert {"dropped", "relu"} <= unstored and not {"x", "features", "later"} & unstored


def test_masks_and_shapes_are_not_stored(ops):
    assert {"shape", "draw", "mask"} <= names(ops, ops.unstored)
    assert names(ops, ops.random) == {"draw"}
