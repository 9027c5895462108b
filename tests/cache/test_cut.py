"""Which ops of a step are frozen, what can be stored, and the cut of least cost."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from elastictrainer.cache.cut import (
    FrozenOps,
    frozen_ops,
    is_storable,
    least_cost_cut,
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


def cheapest_by_brute_force(ops, needed, op_cost, tensor_cost):
    """The least cost of any set of stored tensors, what they do not give being computed again."""
    position = ops.position
    tensors = [t for k in sorted(ops.frozen) for t in ops.operations[k].outputs]
    best = np.inf
    for chosen in itertools.product([False, True], repeat=len(tensors)):
        stored = {t.name for t, kept in zip(tensors, chosen) if kept}
        cost = sum(tensor_cost(t) for t in tensors if t.name in stored)
        again, pending = set(), list(needed)
        while pending:
            for tensor in ops.operations[pending.pop()].inputs:
                k = position[tensor.op.name]
                if k in ops.frozen and tensor.name not in stored and k not in again:
                    again.add(k)
                    pending.append(k)
        if any(ops.operations[k].type == "Placeholder" for k in again):
            continue
        best = min(best, cost + sum(op_cost(ops.operations[k]) for k in again))
    return best


@pytest.mark.parametrize("seed", range(10))
def test_least_cost_cut_costs_as_little_as_the_best_of_all_cuts(seed):
    random = np.random.default_rng(seed)
    operations = [Op("x", kind="Placeholder")]
    for k in range(1, 9):
        tensors = [t for op in operations for t in op.outputs]
        inputs = random.choice(len(tensors), min(len(tensors), random.integers(1, 3)), replace=False)
        operations.append(Op(f"o{k}", [tensors[i] for i in inputs], outputs=random.integers(1, 3)))
    moving = set(random.choice(np.arange(4, 9), 2, replace=False).tolist())
    moving |= {
        k for k in range(9) if any(t.op in [operations[m] for m in moving] for t in operations[k].inputs)
    }
    moving |= {
        k for k in range(9) if any(t.op in [operations[m] for m in moving] for t in operations[k].inputs)
    }
    ops = frozen(operations, moving)
    op_ms = {op.name: float(random.integers(1, 20)) for op in operations}
    tensor_ms = {t.name: float(random.integers(1, 20)) for op in operations for t in op.outputs}
    cut = least_cost_cut(ops, moving, lambda op: op_ms[op.name], lambda t: tensor_ms[t.name])
    cost = sum(tensor_ms[t.name] for t in cut.tensors)
    cost += sum(op_ms[operations[k].name] for k in cut.recomputed)
    expected = cheapest_by_brute_force(ops, moving, lambda op: op_ms[op.name], lambda t: tensor_ms[t.name])
    assert cost == pytest.approx(expected)


def chain(*kinds):
    operations = [Op("x", kind="Placeholder")]
    for k, kind in enumerate(kinds):
        operations.append(Op(f"o{k}", operations[-1].outputs, kind=kind))
    return operations


def names(cut):
    return [tensor.name for tensor in cut.tensors]


def test_small_tensors_are_stored_and_what_is_cheap_is_computed_again():
    operations = chain("Conv", "Relu", "Conv", "Moving")
    sizes = {"x:0": 9.0, "o0:0": 1.0, "o1:0": 1.5, "o2:0": 9.0}
    cut = least_cost_cut(frozen(operations, {4}), {4}, lambda op: 3.0, lambda t: sizes[t.name])
    assert names(cut) == ["o1:0"] and cut.recomputed == {3}, "1.5 and an operation of 3, instead of 1 and two"
    cheap = least_cost_cut(frozen(operations, {4}), {4}, lambda op: 0.1, lambda t: sizes[t.name])
    assert names(cheap) == ["o0:0"]
    assert cheap.recomputed == {2, 3}
    assert cheap.done_once == {1}


NEVER, CHEAP = float("inf"), 0.01


@pytest.mark.parametrize(
    "kind, unstored, behind_it",
    [("Transpose", (), NEVER), ("Dropout", {2}, CHEAP), ("Shape", {2}, 1.0)],
    ids=["no row for each example", "dropout", "shapes and masks"],
)
def test_what_cannot_or_must_not_be_stored_is_computed_again(kind, unstored, behind_it):
    ops = frozen(chain("Conv", kind, "Moving"), {3}, unstored=unstored)
    cut = least_cost_cut(ops, {3}, lambda op: 1.0, lambda t: behind_it if t.name == "o1:0" else 5.0)
    assert names(cut) == ["o0:0"] and cut.recomputed == {2}


def test_a_random_draw_is_not_made_for_the_cache_and_again_in_a_cached_step():
    """A shortcut around a layer behind a dropout: both ends must see the same draw."""
    operations = [Op("x", kind="Placeholder"), Op("mask")]
    operations.append(Op("dropout", [operations[0].outputs[0], operations[1].outputs[0]]))
    operations.append(Op("conv", operations[2].outputs))
    operations.append(Op("add", [operations[2].outputs[0], operations[3].outputs[0]]))
    ops = frozen(operations, {1, 4}, random={1}, unstored={2})
    cut = least_cost_cut(ops, {4}, lambda op: 10.0 if op.name == "conv" else 1.0, lambda t: 1.0)
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


def test_what_dropout_mixes_is_not_stored_up_to_the_next_weight(ops):
    unstored = op_names(ops, ops.unstored)
    assert {"dropped", "relu"} <= unstored and not {"x", "features", "later"} & unstored


def test_masks_and_shapes_are_not_stored(ops):
    assert {"shape", "draw", "mask"} <= op_names(ops, ops.unstored)
    assert op_names(ops, ops.random) == {"draw"}


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
    assert minibatch_mb(features, 4) == pytest.approx(4 * 64e-6)
    assert minibatch_mb(features, 5) == np.inf
