"""The tensors that a step's graph holds in memory: networks small enough to add it up by hand."""

import numpy as np
import pytest

pytest.importorskip("tensorflow")
from builders import traced_step
from elastictrainer.profiler.attribution import attribute, read_by_calls
from elastictrainer.profiler.cost_groups import members_of
from elastictrainer.profiler.memory_groups import held_memory
from elastictrainer.profiler.memory_profile import Measured, step_memory


def held_of(tf, model, batch):
    step = traced_step(tf, model, batch)
    operations = step.graph.get_operations()
    _, charges = attribute(operations, step.loss, step.gradients, step.handles)
    calls = read_by_calls(step.graph, charges, step.gradients)
    found = held_memory(operations, charges, int(batch[0].shape[0]), calls)
    return {tuple(members_of(m)): size for m, size in found.sizes.items()}, found


def under(sizes, *selected):
    return sum(size for members, size in sizes.items() if set(members) & set(selected))


def dense_chain(tf):
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            tf.keras.Input((50,)),
            layers.Dense(100, activation="relu", use_bias=False),
            layers.Reshape((10, 10)),
            layers.Flatten(),
            layers.Dense(200, activation="relu", use_bias=False),
            layers.Dense(3, use_bias=False),
        ]
    )


def test_a_dense_chain_holds_the_inputs_of_layers_and_what_relu_gave(tf):
    batch = tf.ones((8, 50)), tf.zeros((8,), tf.int64)
    sizes, found = held_of(tf, dense_chain(tf), batch)
    loss = under(sizes, 2) - 8 * 200 * 4  # the head's gradient needs its input, and the loss' own gradient
    assert 0 < loss <= 3 * 8 * 3 * 4 + 100
    first, second = 8 * 100 * 4, 8 * 200 * 4
    # The second kernel needs its input, reshaped or not, and its output's sign: that is the head's input.
    assert under(sizes, 1) == pytest.approx(first + second + loss, abs=100)
    # The first one needs the minibatch itself, which is no part of the step's memory, and both signs.
    assert under(sizes, 0) == pytest.approx(first + second + loss, abs=100)
    assert under(sizes, 0, 1, 2) == pytest.approx(first + second + loss, abs=100)
    assert found.unknown == 0
    assert first + second <= found.forward <= 2 * (first + second)


def test_twice_the_examples_hold_twice_the_bytes(tf):
    four, eight = (
        held_of(tf, dense_chain(tf), (tf.ones((n, 50)), tf.zeros((n,), tf.int64)))[0] for n in (4, 8)
    )
    assert under(eight, 0, 1, 2) == pytest.approx(2 * under(four, 0, 1, 2), abs=100)


def test_a_selection_above_a_layer_holds_nothing_of_it(tf):
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            tf.keras.Input((16, 16, 3)),
            layers.Conv2D(32, 3, padding="same", use_bias=False, activation="relu"),
            layers.Conv2D(8, 3, padding="same", use_bias=False),
            layers.GlobalAveragePooling2D(),
            layers.Dense(3, use_bias=False),
        ]
    )
    sizes, _ = held_of(tf, model, (tf.ones((4, 16, 16, 3)), tf.zeros((4,), tf.int64)))
    conv = 4 * 16 * 16 * 32 * 4
    assert under(sizes, 2) < 1000
    assert under(sizes, 1) == pytest.approx(conv, rel=0.02)
    assert under(sizes, 0) == pytest.approx(conv, rel=0.02)
    bigger = max(sizes, key=sizes.get)
    assert bigger == (0, 1), "the first one's output: the second's input, and where relu let through"


def test_the_ops_are_counted_by_what_makes_them_run(tf):
    _, found = held_of(tf, dense_chain(tf), (tf.ones((8, 50)), tf.zeros((8,), tf.int64)))
    assert found.ops[0] > 10
    assert all(found.ops.get(1 << tensor, 0) > 0 for tensor in range(3))


def test_a_loop_in_a_function_is_looked_into(tf):
    """Of two recurrent layers, the upper one's gradients hold nothing of the lower one's calls."""
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [tf.keras.Input((6, 5)), layers.GRU(64, return_sequences=True), layers.GRU(4), layers.Dense(3)]
    )
    sizes, _ = held_of(tf, model, (tf.ones((2, 6, 5)), tf.zeros((2,), tf.int64)))
    names = [v.name for v in model.trainable_weights]
    assert len(names) == 8
    assert under(sizes, 7) < 500
    assert under(sizes, 3) > under(sizes, 7)
    assert under(sizes, *range(8)) >= under(sizes, 3)
    assert np.isfinite(list(sizes.values())).all()


@pytest.mark.parametrize("stays", [0.0, 2e5, 1e9])
def test_a_full_step_is_predicted_as_it_was_measured_whatever_stays_afterwards(tf, stays):
    batch = tf.ones((8, 50)), tf.zeros((8,), tf.int64)
    step = traced_step(tf, dense_chain(tf), batch)
    memory = step_memory(step, batch, Measured(loaded=5e8, peak=1e6, stays=stays))
    every, slots = np.ones(3, bool), 4 * (50 * 100 + 100 * 200 + 200 * 3)  # of momentum
    assert memory.undone().step_bytes(every) == pytest.approx(1e6)
    assert memory.step_bytes(every) == pytest.approx(1e6 + slots)
