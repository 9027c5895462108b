"""The steps of selections that are cut out of the full step's graph, against steps traced in Python."""

import numpy as np
import pytest

from elastictrainer import Objective
from elastictrainer.steps import optimizers
from elastictrainer.steps.compiled_step import CompiledStep
from elastictrainer.steps.keras_compat.optimizer import paused_steps
from elastictrainer.steps.keras_compat.variables import name_of, tf_variables
from elastictrainer.steps.objective import classification_loss
from networks import (
    BATCH,
    assign,
    attention,
    augmented,
    everything,
    inputs_of,
    nested_and_subclassed,
    recurrent,
    residual,
    updating_statistics,
    values,
)

STEPS = 3


def regularised(tf):
    """A network with losses and an update of its own, and one tensor that the loss does not depend on."""
    layers = tf.keras.layers

    class Extra(layers.Layer):
        def build(self, shape):
            self.scale = self.add_weight(name="scale", shape=(shape[-1],), initializer="ones")
            self.unused = self.add_weight(name="unused", shape=(2,), initializer="ones")

        def call(self, x):
            self.add_loss(0.01 * tf.reduce_sum(tf.square(x)))
            self.scale.assign(0.9 * self.scale)
            return x * self.scale

    inputs = tf.keras.Input((8, 8, 3))
    x = layers.Conv2D(4, 3, name="c1", kernel_regularizer="l2")(inputs)
    x = layers.BatchNormalization(name="norm")(x)
    x = layers.Dropout(0.3)(Extra(name="extra")(layers.ReLU()(x)))
    x = layers.Conv2D(4, 3, name="c2", kernel_constraint=tf.keras.constraints.MaxNorm(0.5))(x)
    return tf.keras.Model(inputs, layers.Dense(3, name="head")(layers.Flatten()(x)))


def sgd(tf):
    return optimizers.make("sgd", 0.1, weight_decay=0.1)


class Steps:
    """The full step of a network, and the steps of selections: cut out of it, or traced."""

    def __init__(self, tf, network, make=sgd):
        tf.keras.utils.set_random_seed(1)
        model = network(tf)
        optimizer = make(tf)
        optimizers.prepare_freezing(optimizer, model.trainable_variables)
        self.model, self.optimizer = model, optimizer
        self.objective = Objective(model, classification_loss())
        self.metrics = [tf.keras.metrics.SparseCategoricalAccuracy()]
        self.batch = inputs_of(tf, model), tf.constant([0, 1, 2, 0], tf.int64)
        self.full = CompiledStep(self.objective, optimizer, model.trainable_variables, self.metrics)
        self.full.trace(*self.batch)
        paused = paused_steps(optimizer)
        self.variables = [*everything(self.full), *([] if paused is None else [paused])]
        self.full(*self.batch)  # slots with something in them
        self.before = values(self.variables)

    def step(self, layers, full=None):
        """The step of the tensors of `layers`."""
        chosen = [v for v in self.model.trainable_variables if set(name_of(v).split("/")) & set(layers)]
        assert chosen
        return CompiledStep(self.objective, self.optimizer, chosen, self.metrics, full)

    def after(self, step):
        """Losses of a few steps from the same start, and the values of all variables then."""
        assign(self.variables, self.before)
        losses = [float(step(*self.batch)) for _ in range(STEPS)]
        return losses, values(self.variables)

    def is_part(self, layers):
        return self.full.cutter().step(self.step(layers).variables) is not None

    def assert_alike(self, layers, alike=0.0):
        traced, cut = self.after(self.step(layers)), self.after(self.step(layers, self.full))
        np.testing.assert_allclose(cut[0], traced[0], rtol=alike, atol=alike)
        for variable, one, other in zip(self.variables, cut[1], traced[1]):
            np.testing.assert_allclose(one, other, rtol=alike, atol=alike, err_msg=name_of(variable))
        assert any(not np.array_equal(a, b) for a, b in zip(self.before, cut[1]))


@pytest.mark.parametrize(
    "network, selections",
    [
        (residual, (["head"], ["c1"], ["c2", "head"], ["c3"])),
        (augmented, (["head"], ["c1", "c2"])),
        (updating_statistics, (["head"], ["norm"], ["c1"], ["beta", "kernel"])),
        (regularised, (["head"], ["c1"], ["c2"], ["extra", "head"], ["gamma", "bias"])),
        (attention, (["head"], ["attention_a"], ["norm_b", "embedding"])),
    ],
)
def test_a_part_of_the_full_step_trains_as_a_traced_step(tf, network, selections):
    steps = Steps(tf, network)
    for layers in selections:
        assert steps.is_part(layers), layers
        # TensorFlow fuses ops according to what else is in the graph, and may round their results otherwise.
        steps.assert_alike(layers, 1e-6)


OPTIMIZERS = {
    "keras sgd": lambda tf: optimizers.keras_sgdw(0.1, 0.1, 0.9),
    "adam": lambda tf: optimizers.make("adam", 0.01),
    "adamw": lambda tf: optimizers.make("adamw", 0.01, weight_decay=0.1),
    "clipped": lambda tf: tf.keras.optimizers.SGD(0.1, momentum=0.9, clipnorm=0.1),
    "rmsprop": lambda tf: tf.keras.optimizers.RMSprop(0.01, momentum=0.9, centered=True),
    "adagrad": lambda tf: tf.keras.optimizers.Adagrad(0.01),
    "schedule": lambda tf: tf.keras.optimizers.Adam(
        tf.keras.optimizers.schedules.ExponentialDecay(0.01, 2, 0.5)
    ),
    "amsgrad": lambda tf: tf.keras.optimizers.Adam(0.01, amsgrad=True),
    "nadam": lambda tf: tf.keras.optimizers.Nadam(0.01),
    "adafactor": lambda tf: tf.keras.optimizers.Adafactor(0.01),
    "lion": lambda tf: tf.keras.optimizers.Lion(0.01),
    "clipped together": lambda tf: tf.keras.optimizers.SGD(0.1, momentum=0.9, global_clipnorm=0.1),
}
# Their updates write what cannot be told to be of one tensor, in one of the two versions of Keras at least.
SOMETIMES_TRACED = ("amsgrad", "nadam", "adafactor", "clipped together")


FURTHER = ("adam", "rmsprop", "adagrad", "nadam", "adafactor", "lion")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in FURTHER else n for n in OPTIMIZERS]
)
def test_every_optimizer_updates_as_where_the_step_is_traced(tf, name):
    steps = Steps(tf, updating_statistics, OPTIMIZERS[name])
    for layers in (["c1"], ["beta", "head"]):
        steps.assert_alike(layers, 1e-6)
        if name not in SOMETIMES_TRACED:
            assert steps.is_part(layers)


def test_updates_that_need_all_gradients_are_traced(tf):
    steps = Steps(tf, residual, OPTIMIZERS["clipped together"])
    assert not steps.is_part(["head"])


@pytest.mark.parametrize("network", [recurrent, nested_and_subclassed])
def test_gradients_through_functions_are_traced(tf, network):
    steps = Steps(tf, network)
    assert not steps.is_part(["head"])
    steps.assert_alike(["head"])
    steps.assert_alike(["inner"])


def test_a_selection_is_not_traced_where_there_is_a_full_step(tf):
    steps = Steps(tf, residual)

    def traced_again(*arguments, **options):
        raise AssertionError("the model was called")

    steps.objective.gradients = traced_again
    step = steps.step(["c3"], steps.full)
    spec = tf.TensorSpec((BATCH, 8, 8, 3)), tf.TensorSpec((BATCH,), tf.int64)
    step.trace(*spec)
    part = {op.name for op in step.graph.get_operations()}
    whole = {op.name for op in steps.full.graph.get_operations()}
    assert len(part) < 0.8 * len(whole)
    touched = {id(v) for v in step.state()}
    assert {id(v) for v in tf_variables(steps.model.variables)} <= touched
    assert touched <= {id(v) for v in steps.full.state()}


def test_a_minibatch_of_another_shape_is_traced(tf):
    steps = Steps(tf, residual)
    step = steps.step(["head"], steps.full)
    x, y = steps.batch
    assert step.in_graph(x, y).source.graph is steps.full.graph
    assert step.in_graph(x[:2], y[:2]).source.graph is not steps.full.graph
    assert np.isfinite(float(step(x[:2], y[:2])))


def test_a_full_step_that_nobody_keeps_is_freed(tf):
    import gc
    import weakref

    steps = Steps(tf, residual)
    step, graph = steps.step(["head"], steps.full), weakref.ref(steps.full.graph)
    step(*steps.batch)
    steps.full = None
    gc.collect()
    assert graph() is None
    assert np.isfinite(float(step(*steps.batch)))


def test_gradients_are_those_of_a_traced_step(tf):
    steps = Steps(tf, regularised)
    found = tf.function(lambda x, y: _dense(tf, steps.full.cutter().gradients(x, y)))(*steps.batch)
    variables = steps.model.trainable_variables
    assign(steps.variables, steps.before)
    expected = tf.function(lambda x, y: _dense(tf, steps.objective.gradients(x, y, variables)[2]))
    for one, other in zip(found, expected(*steps.batch)):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def _dense(tf, gradients):
    return [tf.zeros(()) if g is None else tf.convert_to_tensor(g) for g in gradients]
