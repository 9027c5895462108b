"""Which tensors each op is for, in graphs made by hand and in real steps."""

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from builders import image_batch, small_network, step_of, tensor_names, traced_step
from elastictrainer.profiler.attribution import (
    BACKWARD,
    FORWARD,
    UPDATE,
    Charge,
    attribute,
    bodies_of,
    labelled,
)
from elastictrainer.profiler.cost_groups import members_of
from elastictrainer.steps.graph_library import functions_of


class Graph:
    """Ops by hand."""

    def __init__(self):
        self.ops = []

    def op(self, name, *inputs, type="Op", stateful=False):
        op_def = SimpleNamespace(is_stateful=stateful)
        node = SimpleNamespace(name=name, type=type, inputs=inputs, op_def=op_def)
        self.ops.append(node)
        return SimpleNamespace(op=node)


def test_attribute_on_a_hand_made_graph():
    """loss = f(w1, f(w0, x)): one chain, updates, a shared rate and a counter."""
    g = Graph()
    w0, w1 = g.op("w0", type="Placeholder"), g.op("w1", type="Placeholder")
    x = g.op("x", type="Placeholder")
    read0 = g.op("read0", w0, type="ReadVariableOp", stateful=True)
    y0 = g.op("y0", x, read0)
    read1 = g.op("read1", w1, type="ReadVariableOp", stateful=True)
    y1 = g.op("y1", y0, read1)
    loss = g.op("loss", y1)
    dloss = g.op("dloss", loss)
    dw1 = g.op("dw1", dloss, y0)
    dy0 = g.op("dy0", dloss, read1)
    dw0 = g.op("dw0", dy0, x)
    rate = g.op("rate", g.op("step", type="Placeholder"))
    g.op("update0", w0, dw0, rate, type="ResourceApply", stateful=True)
    g.op("update1", w1, dw1, rate, type="ResourceApply", stateful=True)
    g.op("count", g.op("counter", type="Placeholder"), type="AssignAdd", stateful=True)

    assert charged_to(g, loss, [dw0, dw1], [w0, w1]) == {
        "w0": (FORWARD, [0]),
        "w1": (FORWARD, [1]),
        "x": (FORWARD, []),
        "read0": (FORWARD, [0]),
        "y0": (FORWARD, [0]),
        "read1": (FORWARD, [1]),
        "y1": (FORWARD, [0, 1]),
        "loss": (FORWARD, [0, 1]),
        "dloss": (BACKWARD, [0, 1]),
        "dw1": (BACKWARD, [1]),
        "dy0": (BACKWARD, [0]),
        "dw0": (BACKWARD, [0]),
        "rate": (UPDATE, [0, 1]),
        "step": (UPDATE, [0, 1]),
        "update0": (UPDATE, [0]),
        "update1": (UPDATE, [1]),
        "counter": (FORWARD, []),
        "count": (FORWARD, []),
    }


def test_both_parts_of_a_sparse_gradient_count():
    g = Graph()
    w = g.op("w", type="Placeholder")
    loss = g.op("loss", g.op("gather", w, type="ResourceGather", stateful=True))
    values, indices = g.op("values", loss), g.op("indices", loss)
    _, charges = attribute(g.ops, loss, [SimpleNamespace(values=values, indices=indices)], [w])
    assert [c.kind for c in charges[-2:]] == [BACKWARD, BACKWARD]


def test_two_gradients_of_one_op_are_told_apart():
    g = Graph()
    gamma, beta = g.op("gamma", type="Placeholder"), g.op("beta", type="Placeholder")
    loss = g.op("loss", g.op("norm", gamma, beta))
    norm_grad = g.op("norm_grad", loss).op
    dgamma, dbeta = (SimpleNamespace(op=norm_grad, value_index=k) for k in (1, 2))
    slot = g.op("slot", type="Placeholder")
    # Nothing but its gradient ties a slot to a tensor.
    g.op("momentum", slot, g.op("scaled", dgamma), type="Assign", stateful=True)
    g.op("update_gamma", gamma, dgamma, type="ResourceApply", stateful=True)
    g.op("update_beta", beta, dbeta, type="ResourceApply", stateful=True)
    found = charged_to(g, loss, [dgamma, dbeta], [gamma, beta])
    assert found["norm_grad"] == (BACKWARD, [0, 1]) and found["update_beta"] == (UPDATE, [1])
    assert found["update_gamma"] == found["momentum"] == found["scaled"] == (UPDATE, [0])


def charged(step):
    """The ops of a traced step, each with its charge."""
    operations = step.graph.get_operations()
    return list(zip(operations, attribute(operations, step.loss, step.gradients, step.handles)[1]))


def charged_to(graph, loss, gradients, handles):
    """By the name of an op made by hand: the kind of its charge, and the members."""
    names, charges = attribute(graph.ops, loss, gradients, handles)
    return {name: (charge.kind, members_of(charge.members)) for name, charge in zip(names, charges)}


def backward_ops_that_run(step):
    """Types of the ops that the gradients need and the loss does not, by walking one selection's graph."""

    def ancestors(tensors):
        seen, queue = set(), [t.op for t in tensors]
        while queue:
            op = queue.pop()
            if op not in seen:
                seen.add(op)
                queue.extend(t.op for t in op.inputs)
        return seen

    gradients = [
        part for g in step.gradients for part in ([g.values, g.indices] if hasattr(g, "indices") else [g])
    ]
    return Counter(op.type for op in ancestors(gradients) - ancestors([step.loss]))


def shared_weights(tf):
    layers = tf.keras.layers
    inputs = tf.keras.Input((8, 8, 3))
    shared = layers.Conv2D(3, 3, padding="same", name="shared")
    x = shared(layers.ReLU()(shared(layers.Conv2D(3, 1, name="first")(inputs))))
    return tf.keras.Model(inputs, layers.Dense(3)(layers.Flatten()(x)))


def recurrent(tf):
    layers = tf.keras.layers
    inputs = tf.keras.Input((8,), dtype="int32")
    x = layers.RNN(layers.SimpleRNNCell(5), name="rnn")(layers.Embedding(11, 4)(inputs))
    return tf.keras.Model(inputs, layers.Dense(3)(x))


HEAVY = ("Conv2DBackpropFilter", "Conv2DBackpropInput", "MatMul", "BiasAddGrad")


@pytest.mark.parametrize(
    "make, heavy",
    [(small_network, (*HEAVY, "FusedBatchNormGradV3")), (shared_weights, (*HEAVY, "AddN"))],
)
def test_groups_name_the_ops_that_run_under_every_single_tensor(tf, make, heavy):
    """Oracle: the graph that TensorFlow builds when only that tensor is trained."""
    model = make(tf)
    batch = image_batch(tf)
    full = charged(traced_step(tf, model, batch))
    n = len(model.trainable_weights)
    for i in range(n):
        runs = backward_ops_that_run(traced_step(tf, model, batch, np.arange(n) == i))
        its = Counter(op.type for op, c in full if c.kind == BACKWARD and c.members >> i & 1)
        assert {t: runs[t] for t in heavy} == {t: its[t] for t in heavy}, tensor_names(model)[i]


def test_a_shared_kernel_pays_both_its_uses(tf):
    model = shared_weights(tf)
    step = traced_step(tf, model, image_batch(tf))
    kernel = tensor_names(model).index("shared/kernel")
    only_its = [op.type for op, c in charged(step) if c.kind == BACKWARD and c.members == 1 << kernel]
    assert only_its.count("Conv2DBackpropFilter") == 2


def test_a_recurrent_layers_while_loop_is_charged_to_its_tensors(tf):
    from elastictrainer.profiler.xplane import charge_to

    model = recurrent(tf)
    step = traced_step(tf, model, (tf.ones((2, 8), tf.int32), tf.constant([0, 1])))
    inside = {i for i, name in enumerate(tensor_names(model)) if name.startswith(("rnn", "embedding"))}
    names = [op.name for op, _ in charged(step)]
    loops = {op.name: c for op, c in charged(step) if "While" in op.type}
    assert {c.kind for c in loops.values()} == {FORWARD, BACKWARD}
    backward = next(name for name, c in loops.items() if c.kind == BACKWARD)
    assert set(members_of(loops[backward].members)) == inside
    lowered = charge_to([f"{backward}/body/_23/{backward}/MatMul"], names)
    assert names[lowered[0]] == backward


@pytest.mark.parametrize("make", ["sgd", "adam", "keras_sgdw"])
def test_every_update_is_charged_to_its_tensor_and_to_no_other(tf, make):
    from elastictrainer.steps import optimizers

    model = small_network(tf)
    n = len(model.trainable_weights)
    optimizer = optimizers.keras_sgdw(0.1, 0.1, 0.9) if make == "keras_sgdw" else optimizers.make(make)
    step = step_of(model, optimizer)
    step.trace(*image_batch(tf))
    writes = ("Apply", "Assign")
    writing = [c for op, c in charged(step) if c.kind == UPDATE and any(word in op.type for word in writes)]
    for i in range(n):
        assert any(c.members == 1 << i for c in writing), tensor_names(model)[i]
    assert {len(members_of(c.members)) for c in writing} <= {1, n}  # n: what all updates share


def labels_in(tf, function, arguments, outputs):
    """Return the labels of the inputs of `function`, called from another function; and its ops by type."""
    inner = tf.function(function)
    graph = tf.function(lambda *a: inner(*a)).get_concrete_function(*arguments).graph
    (call,) = [op for op in graph.get_operations() if "PartitionedCall" in op.type]
    return labelled(functions_of(graph.as_graph_def().library), call.get_attr("f").name, outputs)


def test_labelled_labels_the_inputs_of_a_function(tf):
    def function(a, b, c):
        return a * b, tf.exp(c)

    inputs, ops = labels_in(tf, function, [tf.zeros(2)] * 3, [1, 2])
    assert inputs == [1, 1, 2] and ops["mul"] == 1 and ops["Exp"] == 2
    inputs, ops = labels_in(tf, function, [tf.zeros(2)] * 3, [1, 0])
    assert inputs == [1, 1, 0] and ops["Exp"] == 0


def test_labelled_goes_round_a_loop(tf):
    def function(x, y, z):
        def body(i, x, y, z):
            return i + 1, tf.exp(x), y + tf.sin(x), tf.tanh(z)

        return tf.while_loop(lambda i, *_: i < 3, body, (0, x, y, z))[1:]

    # y needs x of every earlier iteration.
    inputs, ops = labels_in(tf, function, [tf.zeros(2)] * 3, [1, 2, 4])
    assert inputs == [1 | 2, 2, 4]
    inside = {name.split("/")[-1]: label for name, label in ops.items() if "/body/" in name}
    assert inside["Exp"] == inside["Sin"] | 1 == 3 and inside["Sin"] == 2 and inside["Tanh"] == 4


def test_only_the_part_of_a_call_that_a_tensor_needs_is_charged_to_it(tf):
    class Twice(tf.keras.layers.Layer):
        def build(self, shape):
            self.one = self.add_weight(name="one", shape=(4, 4))
            self.two = self.add_weight(name="two", shape=(4, 4))

        @tf.function
        def inner(self, x):
            return tf.tanh(tf.tanh(x @ self.one) @ self.two)

        def call(self, x):
            return self.inner(x)

    model = tf.keras.Sequential([Twice(), tf.keras.layers.Dense(2)])
    batch = tf.random.normal((3, 4)), tf.constant([0, 1, 1])
    model(batch[0])
    step = traced_step(tf, model, batch)
    bodies, parts = bodies_of(step.graph, [charge for _, charge in charged(step)], step.gradients)
    members = {parts[place].members for body in bodies.values() for place in body.values() if place in parts}
    assert {0b001, 0b010} <= members  # the last matrix products of each tensor's own gradient
    assert all(parts[place] == Charge(BACKWARD, parts[place].members) for place in parts)
