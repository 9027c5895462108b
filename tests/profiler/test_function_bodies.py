"""Events inside called functions: traces made by hand, and real recurrent layers."""

import numpy as np
import pytest

from builders import quick_profile
from elastictrainer.profiler.function_bodies import charge_calls
from elastictrainer.profiler.xplane import Events, Trace, wall_shares
from elastictrainer.steps.objective import classification_loss


def trace(*events, steps=((0, 100),)):
    """(op, start, end) in ms, all in one thread."""
    names = tuple(dict.fromkeys(op for op, _, _ in events))
    start, end = (np.array([e[k] for e in events], float) * 1e6 for k in (1, 2))
    return Trace(
        np.array(steps, float) * 1e6,
        names,
        [Events(start, end, np.array([names.index(op) for op, _, _ in events]))],
    )


def times(charged):
    shares, _ = wall_shares(charged)
    return {name: ms for name, ms in zip(charged.ops, shares.sum(axis=0)) if ms}


BODIES = {"gru": {"while": "gru", "MatMul": "gru"}, "lstm": {"while": "lstm", "Sigmoid": "lstm"}}


def test_an_event_whose_name_is_in_one_body_is_charged_to_its_caller():
    charged = charge_calls(
        trace(("dense", 0, 10), ("MatMul", 10, 30), ("Sigmoid", 30, 60)), ["dense", "gru", "lstm"], BODIES
    )
    assert times(charged) == pytest.approx({"dense": 10, "gru": 20, "lstm": 30})


def test_events_whose_name_is_in_two_bodies_are_divided_in_the_order_of_the_calls():
    times_ms = (
        (0, 1),
        (1, 2),
        (2, 5),
        (5, 8),
    )  # the second call's iterations are longer
    loop = [("while/body/_1/Mul", start, end) for start, end in times_ms]
    again = [("while/body/_1/Mul", 100 + 2 * start, 100 + 2 * end) for start, end in times_ms]
    charged = charge_calls(trace(*loop, *again, steps=((0, 50), (100, 150))), ["gru", "lstm"], BODIES)
    shares, _ = wall_shares(charged)
    by_name = dict(zip(charged.ops, shares.T.tolist()))
    assert by_name["gru"] == pytest.approx([2, 4]) and by_name["lstm"] == pytest.approx([6, 12])


def test_a_body_that_knows_the_op_comes_before_one_that_knows_its_loop_only():
    bodies = {
        "gru": {"while": "gru", "while/body/Add": "gru"},
        "lstm": {"while": "lstm", "while/body/Add": "lstm", "while/body/Exp": "lstm"},
    }
    events = (("while/body/_1/Add", 0, 4), ("while/body/_1/Add", 4, 6), ("while/body/_1/Exp", 6, 9))
    assert times(charge_calls(trace(*events), ["gru", "lstm"], bodies)) == pytest.approx(
        {"gru": 4, "lstm": 5}
    )


def test_an_event_of_no_body_stays_unknown():
    charged = charge_calls(trace(("MatMul", 0, 5), ("mystery", 5, 9)), ["gru"], BODIES)
    assert times(charged) == pytest.approx({"gru": 5, "mystery": 4})


def test_recurrent_layers_are_attributed(tf):
    layers = tf.keras.layers
    tokens = tf.keras.Input((24,), dtype=tf.int64)
    sequence = layers.GRU(64, return_sequences=True, name="lower")(layers.Embedding(50, 32)(tokens))
    model = tf.keras.Model(tokens, layers.Dense(3, name="head")(layers.LSTM(48, name="upper")(sequence)))
    batch = tf.random.uniform((16, 24), 0, 50, tf.int64), tf.random.uniform((16,), 0, 3, tf.int64)
    profile = quick_profile(model, batch, warmup_steps=2, steps=4)
    assert profile.metadata["coverage"] > 0.98, profile.metadata["unattributed"]
    head, upper, lower = ([word in name for name in profile.names] for word in ("head", "upper", "lower"))
    # A layer's tensors cost its backward loop; a deeper one's the loops above it too.
    times = [profile.step_time(head), profile.step_time(upper), profile.step_time(lower)]
    assert times == sorted(times)
    # Each layer's own loop is charged to it: the two have as many iterations, of about as much work.
    loops = np.diff(times)
    assert loops.min() > 0.2 * loops.max(), times


def labelled(tf, function, arguments, outputs):
    """Return the labels of the inputs of `function`, called from another function; and its ops by type."""
    from elastictrainer.profiler.function_bodies import Functions

    inner = tf.function(function)
    graph = tf.function(lambda *a: inner(*a)).get_concrete_function(*arguments).graph
    (call,) = [op for op in graph.get_operations() if "PartitionedCall" in op.type]
    return Functions(graph.as_graph_def().library).labelled(call.get_attr("f").name, outputs)


def test_labelled_labels_the_inputs_of_a_function(tf):
    def function(a, b, c):
        return a * b, tf.exp(c)

    inputs, ops = labelled(tf, function, [tf.zeros(2)] * 3, [1, 2])
    assert inputs == [1, 1, 2] and ops["mul"] == 1 and ops["Exp"] == 2
    inputs, ops = labelled(tf, function, [tf.zeros(2)] * 3, [1, 0])
    assert inputs == [1, 1, 0] and ops["Exp"] == 0


def test_labelled_goes_round_a_loop(tf):
    def function(x, y, z):
        def body(i, x, y, z):
            return i + 1, tf.exp(x), y + tf.sin(x), tf.tanh(z)

        return tf.while_loop(lambda i, *_: i < 3, body, (0, x, y, z))[1:]

    # y needs x of every earlier iteration.
    inputs, ops = labelled(tf, function, [tf.zeros(2)] * 3, [1, 2, 4])
    assert inputs == [1 | 2, 2, 4]
    inside = {name.split("/")[-1]: label for name, label in ops.items() if "/body/" in name}
    assert inside["Exp"] == inside["Sin"] | 1 == 3 and inside["Sin"] == 2 and inside["Tanh"] == 4


def test_only_the_part_of_a_call_that_a_tensor_needs_is_charged_to_it(tf):
    from elastictrainer.profiler.attribution import BACKWARD, Charge, attribute
    from elastictrainer.profiler.function_bodies import bodies_of

    class Twice(tf.keras.layers.Layer):
        def build(self, shape):
            self.one = self.add_weight(name="one", shape=(4, 4))
            self.two = self.add_weight(name="two", shape=(4, 4))

        @tf.function
        def inner(self, x):
            return tf.tanh(tf.tanh(x @ self.one) @ self.two)

        def call(self, x):
            return self.inner(x)

    from elastictrainer.steps import optimizers
    from elastictrainer.steps.compiled_step import CompiledStep
    from elastictrainer.steps.objective import Objective

    model = tf.keras.Sequential([Twice(), tf.keras.layers.Dense(2)])
    batch = tf.random.normal((3, 4)), tf.constant([0, 1, 1])
    model(batch[0])
    optimizer = optimizers.make("sgd")
    optimizers.build(optimizer, model.trainable_variables)
    step = CompiledStep(Objective(model, classification_loss()), optimizer, model.trainable_variables)
    step.trace(*batch)
    names, charges = attribute(step.graph.get_operations(), step.loss, step.gradients, step.handles)
    bodies, parts = bodies_of(step.graph, charges, step.gradients)
    members = {parts[place].members for body in bodies.values() for place in body.values() if place in parts}
    assert {0b001, 0b010} <= members  # the last matrix products of each tensor's own gradient
    assert all(parts[place] == Charge(BACKWARD, parts[place].members) for place in parts)
