"""Walks through graphs, and parts of them."""

import pytest

from elastictrainer.steps.graph_library import called, functions_of, kinds_in
from elastictrainer.steps.graphs import NotAPart, SourceGraph


def test_kinds_in_looks_into_called_functions_branches_and_loops(tf):
    inner = tf.function(tf.math.erf, autograph=False)

    @tf.function(autograph=False)
    def outer(x):
        x = tf.cond(tf.reduce_sum(x) > 0, lambda: inner(x), lambda: tf.tanh(x))
        return tf.while_loop(lambda v: tf.reduce_sum(v) < 9, lambda v: (tf.exp(v),), [x])[0]

    graph = tf.function(lambda x: outer(x), autograph=False).get_concrete_function(tf.TensorSpec(2)).graph
    call = next(op for op in graph.get_operations() if called(op.node_def))
    functions = functions_of(graph.as_graph_def().library)
    assert {"Erf", "Tanh", "Exp", "Less"} <= kinds_in(call.node_def, functions)
    assert not kinds_in(graph.get_operations()[0].node_def, functions)


def ordered(tf):
    """A graph that writes a variable, reads it, and writes another with an empty op in between."""
    v, w = tf.Variable(1.0), tf.Variable(0.0)

    @tf.function
    def whole(x, y):
        before = v.read_value()
        v.assign(x * before)
        with tf.control_dependencies([tf.group(v.read_value() + y)]):
            w.assign_add(v.read_value())
        return before + x, w.read_value() * y

    graph = whole.get_concrete_function(tf.TensorSpec(()), tf.TensorSpec(())).graph
    return v, w, SourceGraph(graph)


def test_a_part_computes_what_is_fetched_and_keeps_the_order_of_its_effects(tf):
    v, w, source = ordered(tf)
    x, _ = [t for t in source.graph.inputs if t.dtype != tf.resource]
    first = source.graph.outputs[0]
    writes = [op for op in source.graph.get_operations() if op.type.startswith("Assign")]
    assert len(writes) == 2
    part = source.extract([x], [first], writes)
    run = tf.function(lambda value: part(value)[0])
    assert [float(run(tf.constant(3.0))) for _ in range(3)] == [4.0, 6.0, 12.0]
    assert (float(v), float(w)) == (27.0, 39.0)  # 3 + 9 + 27
    assert {id(v), id(w)} == {
        id(each) for each in run.get_concrete_function(tf.constant(3.0)).graph.variables
    }


def test_only_what_is_needed_is_built(tf):
    v, w, source = ordered(tf)
    x, y = [t for t in source.graph.inputs if t.dtype != tf.resource]
    part = source.extract([x], [source.graph.outputs[0]])
    run = tf.function(lambda value: part(value)[0]).get_concrete_function(tf.constant(3.0))
    assert not [op for op in run.graph.get_operations() if op.type.startswith("Assign")]
    assert float(run(tf.constant(3.0))) == 4.0 and float(v) == 1.0
    with pytest.raises(NotAPart, match=y.op.name):
        source.extract([x], [source.graph.outputs[1]])
