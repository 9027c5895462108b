"""From a trace to the time of every tensor's work; FLOPs against counts by hand."""

import importlib.util

import numpy as np
import pytest

from builders import image_batch, quick_profile, small_network, tensor_names, traced_step
from elastictrainer.profiler.attribution import FORWARD, attribute
from elastictrainer.profiler.charging import charge_calls, flops_of, profile_from_trace
from elastictrainer.profiler.profile_model import capture
from elastictrainer.profiler.xplane import Events, Trace, charge_to, wall_shares
from elastictrainer.steps.objective import Objective, classification_loss


@pytest.fixture(scope="module")
def step(tf):
    """The small network's step on all its tensors, warm."""
    made = traced_step(tf, small_network(tf), image_batch(tf))
    for _ in range(3):
        made(*image_batch(tf))
    return made


@pytest.fixture(scope="module")
def trace(tf, step):
    """Three steps of it."""
    return capture(step, image_batch(tf), 3).trace


def without(trace, hidden):
    """The trace without the events of the ops of `hidden` (M,) bool."""
    lines = [Events(*(column[~hidden[line.op]] for column in line)) for line in trace.lines]
    return Trace(trace.steps, trace.ops, lines)


def test_all_work_is_on_the_scale_of_the_untraced_step(step, trace):
    profile = profile_from_trace(step, trace, 8.0)
    assert profile.full_ms == pytest.approx(8.0) and profile.names == tuple(
        tensor_names(step.objective.model)
    )
    assert np.all(profile.t_dw > 0) and not profile.estimated.any() and profile.metadata["coverage"] > 0.9


def test_a_trace_without_ops_is_estimated_and_marked(step):
    empty = Trace(np.array([[0.0, 8e6], [8e6, 16e6]]), (), [])
    profile = profile_from_trace(step, empty, 8.0)
    assert profile.estimated.all() and profile.metadata["coverage"] == 0
    assert profile.full_ms == pytest.approx(8.0) and np.all(profile.t_dw > 0)


def test_a_tensor_without_events_gets_an_estimate_and_is_marked(step, trace):
    kernel = tensor_names(step.objective.model).index("inner/kernel")
    operations = step.graph.get_operations()
    names, charges = attribute(operations, step.loss, step.gradients, step.handles)
    its_work = np.array([c.kind != FORWARD and c.members == 1 << kernel for c in charges])
    charged = charge_to(trace.ops, names)
    profile = profile_from_trace(step, without(trace, (charged >= 0) & its_work[charged]), 8.0)
    assert [n for n, e in zip(profile.names, profile.estimated) if e] == ["inner/kernel"]
    assert profile.t_dw[kernel] > 0


def trace_of(*events, steps=((0, 100),)):
    """(op, start, end) in ms, all in one thread."""
    names = tuple(dict.fromkeys(op for op, _, _ in events))
    start, end = (np.array([e[k] for e in events], float) * 1e6 for k in (1, 2))
    line = Events(start, end, np.array([names.index(op) for op, _, _ in events]))
    return Trace(np.array(steps, float) * 1e6, names, [line])


def times(charged):
    shares, _ = wall_shares(charged)
    return {name: ms for name, ms in zip(charged.ops, shares.sum(axis=0)) if ms}


BODIES = {"gru": {"while": "gru", "MatMul": "gru"}, "lstm": {"while": "lstm", "Sigmoid": "lstm"}}
NESTED = {
    "gru": {"while": "gru", "while/body/Add": "gru"},
    "lstm": {"while": "lstm", "while/body/Add": "lstm", "while/body/Exp": "lstm"},
}
DENSE_AND_LOOPS = [("dense", 0, 10), ("MatMul", 10, 30), ("Sigmoid", 30, 60)]
ADDS = [("while/body/_1/Add", 0, 4), ("while/body/_1/Add", 4, 6), ("while/body/_1/Exp", 6, 9)]


@pytest.mark.parametrize(
    "events, bodies, expected",
    [
        (DENSE_AND_LOOPS, BODIES, {"dense": 10, "gru": 20, "lstm": 30}),
        (ADDS, NESTED, {"gru": 4, "lstm": 5}),
        ([("MatMul", 0, 5), ("mystery", 5, 9)], BODIES, {"gru": 5, "mystery": 4}),
    ],
    ids=["in one body", "a body that knows the op comes before one that knows its loop", "in no body"],
)
def test_an_event_is_charged_to_the_caller_of_the_body_that_has_its_name(events, bodies, expected):
    charged = charge_calls(trace_of(*events), ["dense", "gru", "lstm"], bodies)
    assert times(charged) == pytest.approx(expected)


def test_events_whose_name_is_in_two_bodies_are_divided_in_the_order_of_the_calls():
    times_ms = ((0, 1), (1, 2), (2, 5), (5, 8))  # the second call's iterations are longer
    loop = [("while/body/_1/Mul", start, end) for start, end in times_ms]
    again = [("while/body/_1/Mul", 100 + 2 * start, 100 + 2 * end) for start, end in times_ms]
    charged = charge_calls(trace_of(*loop, *again, steps=((0, 50), (100, 150))), ["gru", "lstm"], BODIES)
    shares, _ = wall_shares(charged)
    by_name = dict(zip(charged.ops, shares.T.tolist()))
    assert by_name["gru"] == pytest.approx([2, 4]) and by_name["lstm"] == pytest.approx([6, 12])


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


def test_what_keras_has_xla_compile_counts_as_one_op(tf):
    layers = tf.keras.layers
    # Keras has XLA compile a convolution with groups on a CPU; its gradient takes most of the step there.
    inputs = tf.keras.Input((32, 32, 16))
    x = layers.Conv2D(16, 3, groups=4, use_bias=False, name="grouped")(inputs)
    x = layers.Flatten()(layers.Conv2D(16, 3, use_bias=False, name="plain")(x))
    model = tf.keras.Model(inputs, layers.Dense(3, name="head")(x))
    batch = tf.random.normal((2, 32, 32, 16)), tf.zeros(2, tf.int64)
    unfolded = Objective(model, classification_loss(), fold=False)
    profile = quick_profile(model, batch, unfolded, warmup_steps=2, steps=4)
    assert profile.metadata["coverage"] > 0.98, profile.metadata["unattributed"]
    grouped, plain = ([word in name for name in profile.names] for word in ("grouped", "plain"))
    assert profile.step_time(grouped) > profile.step_time(plain) and not profile.estimated.any()
    assert profile.dw.amount_per_tensor()[grouped] > 10 * profile.t_update.max()


BATCH = 4


@pytest.fixture(scope="module")
def counted(tf):
    """A 3x3 convolution of 16 channels on 8x8x3, and a dense layer of 10: its profile."""
    layers = tf.keras.layers
    pixels = tf.keras.Input((8, 8, 3))
    features = layers.Conv2D(16, 3, padding="same", use_bias=False, name="convolution")(pixels)
    model = tf.keras.Model(pixels, layers.Dense(10, use_bias=False, name="dense")(layers.Flatten()(features)))
    batch = tf.random.normal((BATCH, 8, 8, 3)), tf.zeros((BATCH,), tf.int64)
    # The default's update takes two operations a weight where TensorFlow Addons fuses it, Keras' own more.
    optimizer = None if importlib.util.find_spec("tensorflow_addons") else tf.keras.optimizers.SGD(0.01)
    return quick_profile(model, batch, optimizer=optimizer)


CONVOLUTION = 2 * BATCH * 8 * 8 * 16 * (3 * 3 * 3)  # a multiplication and an addition for each product
DENSE = 2 * BATCH * (8 * 8 * 16) * 10


def near(flops, updated=0):
    """The loss adds a little, and the update of `updated` weights two operations each at most."""
    return pytest.approx(flops + updated, abs=updated + 0.001 * flops)


def test_forward_is_the_sum_of_the_layers(counted):
    forward = counted.step_flops([False, False])
    assert forward == near(CONVOLUTION + DENSE) and forward >= CONVOLUTION + DENSE


def test_each_tensor_adds_its_own_gradient_and_what_leads_to_it(counted):
    forward = counted.step_flops([False, False])
    kernel, dense = 3 * 3 * 3 * 16, 8 * 8 * 16 * 10
    assert counted.step_flops([False, True]) - forward == near(DENSE, dense)
    # The kernel's gradient, and the gradient through the dense layer; the input needs none.
    assert counted.step_flops([True, False]) - forward == near(CONVOLUTION + DENSE, kernel)
    assert counted.step_flops([True, True]) - forward == near(CONVOLUTION + 2 * DENSE, kernel + dense)


def test_depthwise_gradients_are_counted(tf):
    with tf.Graph().as_default() as graph:
        x, kernel = tf.zeros((2, 8, 8, 5)), tf.zeros((3, 3, 5, 1))
        y = tf.nn.depthwise_conv2d(x, kernel, [1, 1, 1, 1], "SAME")
        tf.gradients(y, [x, kernel])
        operations = graph.get_operations()
        count = dict(zip((op.type for op in operations), flops_of(operations)))
    expected = 2 * (2 * 8 * 8 * 5) * 9
    for kind in ("", "BackpropInput", "BackpropFilter"):
        assert count[f"DepthwiseConv2dNative{kind}"] == expected, kind
