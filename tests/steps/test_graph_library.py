"""Walks through graphs, and the kinds of ops that a graph's functions hold."""

from elastictrainer.steps.graph_library import GraphLibrary, called, reached


def test_reached_goes_round_a_ring_once():
    asked = []

    def following(k):
        asked.append(k)
        return [(k + 1) % 3]

    assert reached([1], following) == {0, 1, 2}
    assert sorted(asked) == [0, 1, 2]


def test_kinds_in_looks_into_called_functions_branches_and_loops(tf):
    inner = tf.function(tf.math.erf, autograph=False)

    @tf.function(autograph=False)
    def outer(x):
        x = tf.cond(tf.reduce_sum(x) > 0, lambda: inner(x), lambda: tf.tanh(x))
        return tf.while_loop(lambda v: tf.reduce_sum(v) < 9, lambda v: (tf.exp(v),), [x])[0]

    graph = tf.function(lambda x: outer(x), autograph=False).get_concrete_function(tf.TensorSpec(2)).graph
    call = next(op for op in graph.get_operations() if called(op.node_def))
    kinds = GraphLibrary(graph.as_graph_def().library).kinds_in(call.node_def)
    assert {"Erf", "Tanh", "Exp", "Less"} <= kinds
    assert not GraphLibrary(graph.as_graph_def().library).kinds_in(graph.get_operations()[0].node_def)
