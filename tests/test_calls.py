"""Events inside called functions, by hand and on real recurrent layers."""

import numpy as np
import pytest

from elastictrainer import profile_model
from elastictrainer.objective import classification_loss
from elastictrainer.profiler.calls import charge_calls
from elastictrainer.profiler.xplane import Trace, wall_shares


def trace(*events, steps=((0, 100),)):
    """(op, start, end) in ms, all in one thread."""
    names = tuple(dict.fromkeys(op for op, _, _ in events))
    start, end = (np.array([e[k] for e in events], float) * 1e6 for k in (1, 2))
    return Trace(np.array(steps, float) * 1e6, names, [(start, end, np.array([names.index(op) for op, _, _ in events]))])


def times(charged):
    shares, _ = wall_shares(charged)
    return {name: ms for name, ms in zip(charged.ops, shares.sum(axis=0)) if ms}


BODIES = {"gru": ["while", "MatMul"], "lstm": ["while", "Sigmoid"]}


def test_a_name_in_one_body_goes_to_its_caller():
    charged = charge_calls(trace(("dense", 0, 10), ("MatMul", 10, 30), ("Sigmoid", 30, 60)), ["dense", "gru", "lstm"], BODIES)
    assert times(charged) == pytest.approx({"dense": 10, "gru": 20, "lstm": 30})


def test_a_name_in_both_goes_to_the_nearest_in_time():
    events = (("MatMul", 0, 5), ("while/body/_1/Mul", 5, 15), ("while/body/_1/Mul", 30, 40), ("Sigmoid", 40, 45))
    assert times(charge_calls(trace(*events), ["gru", "lstm"], BODIES)) == pytest.approx({"gru": 15, "lstm": 30})


def test_without_any_clue_the_events_of_a_step_are_dealt_out_in_order():
    loop = [("while/body/_1/Mul", k, k + 1) for k in range(4)]
    again = [("while/body/_1/Mul", 100 + 2 * k, 102 + 2 * k) for k in range(4)]
    charged = charge_calls(trace(*loop, *again, steps=((0, 50), (100, 150))), ["gru", "lstm"], BODIES)
    shares, _ = wall_shares(charged)
    by_name = dict(zip(charged.ops, shares.T.tolist()))
    assert by_name["gru"] == pytest.approx([2, 4]) and by_name["lstm"] == pytest.approx([2, 4])


def test_what_nobody_knows_stays_unknown():
    charged = charge_calls(trace(("MatMul", 0, 5), ("mystery", 5, 9)), ["gru"], BODIES)
    assert times(charged) == pytest.approx({"gru": 5, "mystery": 4})


def test_recurrent_layers_are_attributed(tf):
    layers = tf.keras.layers
    tokens = tf.keras.Input((24,), dtype=tf.int64)
    sequence = layers.GRU(64, return_sequences=True, name="lower")(layers.Embedding(50, 32)(tokens))
    model = tf.keras.Model(tokens, layers.Dense(3, name="head")(layers.LSTM(48, name="upper")(sequence)))
    batch = tf.random.uniform((16, 24), 0, 50, tf.int64), tf.random.uniform((16,), 0, 3, tf.int64)
    timings = profile_model(model, classification_loss(), batch, warmup=2, steps=4)
    assert timings.metadata["coverage"] > 0.98, timings.metadata["unattributed"]
    head, upper, lower = ([word in name for name in timings.names] for word in ("head", "upper", "lower"))
    # A layer's tensors cost its backward loop; a deeper one's the loops above it too.
    assert timings.step_time(head) < timings.step_time(upper) < timings.step_time(lower)
