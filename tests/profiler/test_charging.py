"""From a trace of real steps to the time of every tensor's work."""

import numpy as np
import pytest

from builders import image_batch, small_network, tensor_names, traced_step
from elastictrainer.profiler.attribution import FORWARD, attribute
from elastictrainer.profiler.capture import capture
from elastictrainer.profiler.charging import profile_from_trace
from elastictrainer.profiler.xplane import Events, Trace, charge_to


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
