"""Which ops of a step are frozen, what can be stored, and the cut behind the last of them."""

from types import SimpleNamespace

import numpy as np
import pytest

from elastictrainer.cache.cut import (
    FrozenOps,
    frozen_ops,
    is_storable,
    last_frozen_tensors,
    minibatch_mb,
    row_bytes,
    stored_dtype,
)


class Op:
    """An op of a graph, with outputs that know who reads them."""

    def __init__(self, name, inputs=(), outputs=1, kind="Op"):
        self.name, self.type, self.inputs = name, kind, list(inputs)
        self.outputs = [Tensor(self, k) for k in range(outputs)]
        for tensor in self.inputs:
            tensor.readers.append(self)


class Tensor:
    def __init__(self, op, index):
        self.op, self.name, self.readers = op, f"{op.name}:{index}", []

    def consumers(self):
        return self.readers


def frozen(operations, moving=(), **sets):
    """Make the FrozenOps of a graph whose ops are all frozen but those at `moving`."""
    rest = {name: set(sets.get(name, ())) for name in ("random", "unstored")}
    return FrozenOps(
        operations, set(range(len(operations))) - set(moving), set(moving), **rest, random_states={}
    )


def chain(*kinds):
    operations = [Op("x", kind="Placeholder")]
    for k, kind in enumerate(kinds):
        operations.append(Op(f"o{k}", operations[-1].outputs, kind=kind))
    return operations


def names(cut):
    return [tensor.name for tensor in cut.tensors]


def all_but(*unstorable):
    return lambda tensor: tensor.name not in unstorable


def test_the_last_frozen_tensor_is_stored():
    cut = last_frozen_tensors(frozen(chain("Conv", "Relu", "Moving"), {3}), {3}, all_but())
    assert names(cut) == ["o1:0"] and cut.done_once == {1, 2} and not cut.recomputed


@pytest.mark.parametrize(
    "kind, unstored, unstorable",
    [("Transpose", (), "o1:0"), ("Dropout", {2}, "none"), ("Conv", (), "o0:0")],
    ids=["no row for each example", "dropout", "only the last one counts"],
)
def test_what_cannot_or_must_not_be_stored_is_computed_again(kind, unstored, unstorable):
    ops = frozen(chain("Conv", kind, "Moving"), {3}, unstored=unstored)
    cut = last_frozen_tensors(ops, {3}, all_but(unstorable))
    expected = (["o1:0"], set()) if kind == "Conv" else (["o0:0"], {2})
    assert (names(cut), cut.recomputed) == expected


def test_inputs_are_stored_where_nothing_else_can_be():
    cut = last_frozen_tensors(frozen(chain("Conv", "Moving"), {2}, unstored={1}), {2}, all_but("x:0"))
    assert names(cut) == ["x:0"] and cut.recomputed == {1} and not cut.done_once


def test_a_random_draw_is_not_made_for_the_cache_and_again_in_a_cached_step():
    """A shortcut around a layer behind a dropout: both ends must see the same draw."""
    operations = [Op("x", kind="Placeholder"), Op("mask")]
    operations.append(Op("dropout", [operations[0].outputs[0], operations[1].outputs[0]]))
    operations.append(Op("conv", operations[2].outputs))
    operations.append(Op("add", [operations[2].outputs[0], operations[3].outputs[0]]))
    ops = frozen(operations, {1, 4}, random={1}, unstored={2})
    cut = last_frozen_tensors(ops, {4}, all_but())
    assert names(cut) == ["x:0"]
    assert cut.recomputed == {2, 3}


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


def op_names(ops, positions):
    return {ops.operations[k].name.split("/")[0] for k in positions}


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
