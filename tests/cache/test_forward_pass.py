"""What the ops of a forward pass cost, and which of them mix the examples of a minibatch."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from builders import random_profile
from elastictrainer.cache import forward_pass
from elastictrainer.cache.forward_pass import (
    ForwardPass,
    in_parts,
    op_costs,
    stop_where_examples_mix,
    weights_of,
)
from elastictrainer.cache.split import TracedStep
from elastictrainer.profiler.cost_groups import CostGroups
from elastictrainer.steps.keras_compat import InferenceMode
from networks import trained_step, updating_statistics

BATCH = 4


def minibatch_of(tf, *shape):
    images = np.random.default_rng(0).normal(size=(BATCH, *(shape or (8, 8, 3))))
    return tf.constant(images, tf.float32), tf.zeros(BATCH, tf.int64)


def mixing_examples(tf):
    """A network that takes the mean over the minibatch from each example."""
    layers = tf.keras.layers

    class OthersToo(layers.Layer):
        def call(self, x):
            return x - tf.reduce_mean(x, axis=0, keepdims=True)

        def compute_output_shape(self, shape):
            return shape

    inputs = tf.keras.Input((8, 8, 3))
    x = layers.Conv2D(4, 3, name="c1")(OthersToo()(inputs))
    x = layers.Flatten()(layers.Conv2D(4, 3, name="c2")(x))
    return tf.keras.Model(inputs, layers.Dense(3, name="head")(x))


def frozen_convolutions(traced):
    return [k for k in traced.ops.frozen if traced.ops.operations[k].type == "Conv2D"]


def test_ops_that_mix_examples_do_not_count_as_frozen_and_are_looked_for_once(tf):
    """Examples that are all alike cannot tell; what an earlier selection found out counts."""
    step = trained_step(tf, mixing_examples(tf), ["head"])
    x, y = minibatch_of(tf)
    forward = ForwardPass(step.objective, step.optimizer, (x, y))
    alike = tf.repeat(x[:1], BATCH, axis=0), y
    for minibatch, known, stops in (((x, y), {}, True), (alike, {}, False), (alike, forward.mixing, True)):
        traced = TracedStep(step.in_graph(*minibatch), [])
        assert frozen_convolutions(traced)
        stop_where_examples_mix(traced, minibatch, known)
        assert bool(frozen_convolutions(traced)) != stops


def test_ops_that_make_rows_of_another_axis_are_frozen_but_not_stored(tf):
    """Five frames of each example become rows of the minibatch in between, and one row again."""
    layers = tf.keras.layers

    class Rows(layers.Layer):
        def __init__(self, *shape):
            super().__init__()
            self._shape = shape

        def call(self, x):
            return tf.reshape(x, (-1, *self._shape))

    inputs = tf.keras.Input((5, 8, 8, 3))
    frames = layers.Flatten()(layers.Conv2D(4, 3)(Rows(8, 8, 3)(inputs)))
    pooled = layers.GlobalAveragePooling1D()(Rows(5, 6 * 6 * 4)(frames))
    step = trained_step(tf, tf.keras.Model(inputs, layers.Dense(3, name="head")(pooled)), ["head"])
    spec = tf.TensorSpec((None, 5, 8, 8, 3)), tf.TensorSpec((None,), tf.int64)
    minibatch = minibatch_of(tf, 5, 8, 8, 3)
    traced = TracedStep(step.in_graph(*spec), [])
    stop_where_examples_mix(traced, minibatch, {})
    convolutions = frozen_convolutions(traced)
    assert convolutions and traced.ops.unstored.issuperset(convolutions)
    means = {k for k in traced.ops.frozen if traced.ops.operations[k].type == "Mean"}
    assert means and not means & traced.ops.unstored


@pytest.mark.parametrize("held", [128e6, 1.0], ids=["together", "one by one"])
def test_statistics_that_are_updated_stop_the_prefix(tf, held):
    step, minibatch = trained_step(tf, updating_statistics(tf), ["head"]), minibatch_of(tf)
    traced = TracedStep(step.in_graph(*minibatch), [])
    stop_where_examples_mix(traced, minibatch, {}, held)
    cut = traced.cut(BATCH)
    once = {traced.ops.operations[k].name for k in cut.done_once}
    assert any("c1" in name for name in once)
    assert not any("c2" in name or "norm" in name for name in once)


def test_outputs_that_nobody_reads_do_not_count(tf, monkeypatch):
    """Normalisation in inference leaves some with as many numbers as there are channels unwritten: here these
    are as many as examples.
    """
    layers, compared = tf.keras.layers, []
    inputs = tf.keras.Input((8, 8, 3))
    x = layers.Conv2D(BATCH, 3, name="c1")(inputs)
    x = InferenceMode(layers.BatchNormalization())(x)
    x = layers.Flatten()(layers.Conv2D(4, 3, name="c2")(x))
    model = tf.keras.Model(inputs, layers.Dense(3, name="head")(x))
    step, minibatch = trained_step(tf, model, ["head"]), minibatch_of(tf)
    traced = TracedStep(step.in_graph(*minibatch), [])
    compare = forward_pass._compare_examples

    def noting(step, tensors, *others):
        compared.extend(tensors)
        compare(step, tensors, *others)

    monkeypatch.setattr(forward_pass, "_compare_examples", noting)
    stop_where_examples_mix(traced, minibatch, {})
    assert compared and all(tensor.consumers() for tensor in compared)
    assert len(frozen_convolutions(traced)) == 2


def test_tensors_are_compared_in_parts_of_few_bytes(tf):
    with tf.Graph().as_default():
        # Rows of 20, 60, 40, 120, 8, 12 bytes.
        tensors = [tf.zeros((4, width)) for width in (5, 15, 10, 30, 2, 3)]
    for most, expected in ((100.0, [[5, 15], [10], [30], [2, 3]]), (50.0, [[5], [15], [10], [30], [2, 3]])):
        parts = in_parts(tensors, most)
        assert [[int(t.shape[1]) for t in part] for part in parts] == expected


A, B, C, UNKNOWN = (SimpleNamespace(name=name) for name in ("a", "b", "c", "unknown"))


@pytest.fixture
def profile():
    """A profile whose forward work is 6 ms of tensor 0 and 4 ms of tensors 0 and 1 together."""
    forward = CostGroups.from_sets(2, [(0,), (0, 1)], [6.0, 4.0])
    return dataclasses.replace(random_profile(np.random.default_rng(0), 2), forward=forward)


@pytest.mark.parametrize(
    "weights, members, expected",
    [
        ([1.0, 2.0, 5.0], [0b01, 0b01, 0b11], [2.0, 4.0, 4.0]),
        # Such as a convolution that runs fused with its bias: it has no group of its own.
        ([1.0, 1.0, 3.0], [0b01, 0b10, 0b11], [6.0, 1.0, 3.0]),
        # Of no group that has its tensors: what others cost on average.
        ([4.0, 1.0, 5.0], [0b01, 0b100, 0b11], [6.0, 1.0, 4.0]),
    ],
    ids=["by weight", "in the least group that has its tensors", "by the average"],
)
def test_a_groups_time_is_shared_out_among_its_ops(profile, weights, members, expected):
    cost = op_costs(profile, [A, B, C], weights, members)
    assert [cost(op) for op in (A, B, C)] == pytest.approx(expected)
    assert cost(UNKNOWN) == 0


def test_without_a_profile_weight_alone_counts():
    cost = op_costs(None, [A, B], [1.0, 3.0], [0b01, 0b10])
    assert cost(B) == pytest.approx(3 * cost(A)) and cost(A) > 0


def test_an_op_weighs_its_flops_and_what_it_writes_and_reading_a_variable_nothing(tf):
    weight = tf.Variable(tf.ones((3, 5)))
    graph = tf.function(lambda x: tf.nn.relu(x @ weight)).get_concrete_function(tf.TensorSpec((2, 3))).graph
    weights = dict(zip((op.type for op in graph.get_operations()), weights_of(graph.get_operations())))
    assert weights["ReadVariableOp"] == weights["Placeholder"] == 0
    assert weights["MatMul"] > weights["Relu"] > 0
