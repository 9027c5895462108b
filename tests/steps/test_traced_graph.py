import pytest

from elastictrainer.steps.traced_graph import NotAPart, TracedGraph


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
    return v, w, TracedGraph(graph)


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
