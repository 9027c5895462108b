"""Steps timed beside a run, and the warm-up of a step before it is measured."""

import itertools

import numpy as np
import pytest

from builders import ArrayData, small_network, step_of
from elastictrainer.steps import optimizers
from elastictrainer.steps.keras_compat.variables import random_states
from elastictrainer.steps.timing import time_steps, warm_up


def test_steps_are_timed_and_leave_no_trace(tf):
    model, optimizer = small_network(tf), optimizers.make("adam", 0.1)
    step = step_of(model, optimizer)
    variables = [*model.variables, *optimizers.variables_of(optimizer), *random_states(model)]
    before = [v.numpy() for v in variables]
    times = time_steps(step, ArrayData(tf, steps=2).train(0))  # fewer than are timed
    assert len(times) == 6 and all(0 < ms < 10_000 for ms in times)
    for variable, value in zip(variables, before):
        np.testing.assert_array_equal(variable.numpy(), value)
    assert float(step(*next(ArrayData(tf).train(0)))) > 0
    assert any(not np.array_equal(v.numpy(), value) for v, value in zip(variables, before)), "no step at all"


def test_of_many_minibatches_one_is_read_to_build_the_graph_and_one_for_each_run(tf):
    step = step_of(small_network(tf), optimizers.make("sgd", 0.1))
    read = itertools.count()
    (minibatch,) = ArrayData(tf, steps=1).train(0)
    time_steps(step, ((next(read), minibatch)[1] for _ in itertools.repeat(None)))
    assert next(read) == 9  # six are timed, two are not


class Step:
    """A compiled step that takes `step_s` by its own clock."""

    def __init__(self, step_s, runs):
        self.now_s, self.step_s, self.runs = 0.0, step_s, runs

    def __call__(self, x, y):
        self.now_s += self.step_s
        self.runs += 1
        return 0.0

    def clock(self):
        return self.now_s


@pytest.mark.parametrize(
    "step_s, ran_before, made", [(0.01, 0, 100), (0.01, 70, 30), (0.01, 100, 0), (0.25, 0, 8), (3.0, 0, 3)]
)
def test_a_step_is_warm_after_a_hundred_runs_or_two_seconds(tf, step_s, ran_before, made):
    step = Step(step_s, ran_before)
    assert warm_up(step, (None, None), clock=step.clock) == made and step.runs == ran_before + made
