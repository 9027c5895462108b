"""The cost of ops, by weights and groups made by hand."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from builders import random_profile
from elastictrainer.cache.op_costs import op_costs, weights_of
from elastictrainer.profiler.cost_groups import CostGroups

A, B, C, UNKNOWN = (SimpleNamespace(name=name) for name in ("a", "b", "c", "unknown"))


@pytest.fixture
def profile():
    """A profile whose forward work is 6 ms of tensor 0 and 4 ms of tensors 0 and 1 together."""
    forward = CostGroups.from_sets(2, [(0,), (0, 1)], [6.0, 4.0])
    return dataclasses.replace(random_profile(np.random.default_rng(0), 2), forward=forward)


def test_a_groups_time_is_shared_out_by_weight(profile):
    cost = op_costs(profile, [A, B, C], [1.0, 2.0, 5.0], [0b01, 0b01, 0b11])
    assert [cost(op) for op in (A, B, C)] == pytest.approx([2.0, 4.0, 4.0])
    assert cost(UNKNOWN) == 0


def test_an_op_whose_group_is_not_measured_shares_the_least_one_that_has_its_tensors(profile):
    """Such as a convolution that runs fused with its bias."""
    cost = op_costs(profile, [A, B, C], [1.0, 1.0, 3.0], [0b01, 0b10, 0b11])
    assert [cost(op) for op in (A, B, C)] == pytest.approx([6.0, 1.0, 3.0])


def test_an_op_of_no_group_costs_what_others_do_on_average(profile):
    cost = op_costs(profile, [A, B], [4.0, 1.0], [0b01, 0b100])
    assert cost(B) == pytest.approx((6.0 + 4.0) / 5)


def test_without_a_profile_weight_alone_counts():
    cost = op_costs(None, [A, B], [1.0, 3.0], [0b01, 0b10])
    assert cost(B) == pytest.approx(3 * cost(A)) and cost(A) > 0


def test_an_op_weighs_its_flops_and_what_it_writes_and_reading_a_variable_nothing(tf):
    weight = tf.Variable(tf.ones((3, 5)))
    graph = tf.function(lambda x: tf.nn.relu(x @ weight)).get_concrete_function(tf.TensorSpec((2, 3))).graph
    weights = dict(zip((op.type for op in graph.get_operations()), weights_of(graph.get_operations())))
    assert weights["ReadVariableOp"] == weights["Placeholder"] == 0
    assert weights["MatMul"] > weights["Relu"] > 0
