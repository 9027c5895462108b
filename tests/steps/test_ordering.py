"""Gradients worked on one by one: the same step, in an order that holds few of them at once."""

import numpy as np
import pytest

from elastictrainer.selection import importance
from elastictrainer.selection.importance import ImportanceEvaluator
from elastictrainer.steps import compiled_step, optimizers, ordering
from elastictrainer.steps.compiled_step import CompiledStep
from elastictrainer.steps.objective import Objective, classification_loss


def network(tf, make_optimizer):
    """A chain with a layer that is used twice; a step of its own; a minibatch."""
    tf.keras.utils.set_random_seed(1)
    inputs = tf.keras.Input((6,))
    twice = tf.keras.layers.Dense(6, activation="relu")
    hidden = twice(tf.keras.layers.Dense(6, activation="relu")(inputs))
    outputs = tf.keras.layers.Dense(3)(tf.keras.layers.Dense(6, activation="relu")(twice(hidden)))
    model = tf.keras.Model(inputs, outputs)
    optimizer = make_optimizer(tf)
    variables = model.trainable_variables
    optimizers.build(optimizer, variables)
    objective = Objective(model, classification_loss())
    batch = tf.random.normal((4, 6), seed=2), tf.constant([0, 1, 2, 0], tf.int64)
    return objective, optimizer, variables, batch


def trained(tf, make_optimizer, undo=False):
    """The weights after three steps, and the graph of the step."""
    objective, optimizer, variables, batch = network(tf, make_optimizer)
    undone = [*variables, *optimizers.variables_of(optimizer)] if undo else []
    step = CompiledStep(objective, optimizer, variables, undone=undone)
    step.trace(*batch)
    for _ in range(3):
        step(*batch)
    return [variable.numpy() for variable in variables], step


def waits(step):
    """How many ops of the backward pass wait for an op that was traced after them."""
    place = {op.name: k for k, op in enumerate(step.graph.get_operations())}
    return sum(
        any(place[earlier.name] > place[op.name] for earlier in op.control_inputs)
        for op in step.graph.get_operations()
        if op.name.startswith("gradient")
    )


OPTIMIZERS = {
    "sgd": lambda tf: optimizers.make("sgd", 0.1),
    "adam": lambda tf: optimizers.make("adam", 0.1),
    "adamw": lambda tf: optimizers.make("adamw", 0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("undo", [False, True])
def test_an_ordered_step_computes_the_same(tf, monkeypatch, name, undo):
    with monkeypatch.context() as unordered:
        unordered.setattr(compiled_step, "one_by_one", lambda *arguments: None)
        plain, step = trained(tf, OPTIMIZERS[name], undo)
    assert not waits(step)
    ordered, step = trained(tf, OPTIMIZERS[name], undo)
    assert waits(step) >= len(ordered) - 2
    for before, after in zip(plain, ordered):
        np.testing.assert_array_equal(before, after)


def test_in_bfloat16_large_gradients_alone_are_ordered(tf, mixed_precision, monkeypatch):
    assert not waits(trained(tf, OPTIMIZERS["sgd"])[1])
    monkeypatch.setattr(ordering, "_LARGE", 0.0)
    assert waits(trained(tf, OPTIMIZERS["sgd"])[1])


def test_a_step_that_needs_all_gradients_first_has_no_order(tf):
    clipped, step = trained(tf, lambda tf: tf.keras.optimizers.SGD(0.1, global_clipnorm=0.5))
    assert not waits(step) and np.all(np.isfinite(np.concatenate([w.ravel() for w in clipped])))


def test_scores_are_the_same_in_order(tf, monkeypatch, tmp_path):
    def scored():
        objective, optimizer, _, batch = network(tf, OPTIMIZERS["sgd"])
        return ImportanceEvaluator(objective, optimizer)([batch, batch], folder=tmp_path)

    with monkeypatch.context() as unordered:
        unordered.setattr(importance, "one_by_one", lambda *arguments: None)
        plain = scored()
    np.testing.assert_array_equal(plain, scored())
