"""Full steps timed beside a run."""

import itertools

import numpy as np

from builders import ArrayData, small_network
from elastictrainer import Objective
from elastictrainer.steps import optimizers
from elastictrainer.steps.compiled_step import CompiledStep
from elastictrainer.steps.keras_compat.variables import random_states
from elastictrainer.steps.objective import classification_loss
from elastictrainer.steps.timing import time_steps


def test_steps_are_timed_and_leave_no_trace(tf):
    model, optimizer = small_network(tf), optimizers.make("adam", 0.1)
    optimizers.build(optimizer, model.trainable_variables)
    step = CompiledStep(Objective(model, classification_loss()), optimizer, model.trainable_variables)
    variables = [*model.variables, *optimizers.variables_of(optimizer), *random_states(model)]
    before = [v.numpy() for v in variables]
    times = time_steps(step, ArrayData(tf, steps=2).train(0))  # fewer than are timed
    assert len(times) == 6 and all(0 < ms < 10_000 for ms in times)
    for variable, value in zip(variables, before):
        np.testing.assert_array_equal(variable.numpy(), value)
    assert float(step(*next(ArrayData(tf).train(0)))) > 0
    assert any(not np.array_equal(v.numpy(), value) for v, value in zip(variables, before)), "no step at all"


def minibatches_read(tf, **options):
    """The times of a small network's step on endless minibatches, and how many of these were read."""
    model, optimizer = small_network(tf), optimizers.make("sgd", 0.1)
    optimizers.build(optimizer, model.trainable_variables)
    step = CompiledStep(Objective(model, classification_loss()), optimizer, model.trainable_variables)
    read = itertools.count()
    (minibatch,) = ArrayData(tf, steps=1).train(0)
    times = time_steps(step, ((next(read), minibatch)[1] for _ in itertools.repeat(None)), **options)
    return times, next(read)


def test_of_many_minibatches_only_a_few_are_read(tf):
    assert minibatches_read(tf)[1] <= 16


def test_as_many_runs_are_timed_as_asked_for(tf):
    times, read = minibatches_read(tf, count=3, warm_up=1)
    assert len(times) == 3 and read == 5  # one to build the graph with, and one for each run
