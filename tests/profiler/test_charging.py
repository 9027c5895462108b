"""From a trace of real steps to the time of every tensor's work."""

import dataclasses

import numpy as np
import pytest

from builders import image_batch, small_network, tensor_names, traced_step
from elastictrainer import TensorTimings
from elastictrainer.profiler.attribution import FORWARD, attribute
from elastictrainer.profiler.capture import capture
from elastictrainer.profiler.charging import renewed, timings_from_trace
from elastictrainer.profiler.xplane import Trace, charge_to


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
    return capture(step, image_batch(tf), 3)[0]


def without(trace, hidden):
    """The trace without the events of the ops of `hidden` (M,) bool."""
    lines = [(start[~hidden[op]], end[~hidden[op]], op[~hidden[op]]) for start, end, op in trace.lines]
    return Trace(trace.steps, trace.ops, lines)


def test_all_work_is_on_the_scale_of_the_untraced_step(step, trace):
    timings = timings_from_trace(step, trace, 8.0)
    assert timings.full_ms == pytest.approx(8.0) and timings.names == tuple(
        tensor_names(step.objective.model)
    )
    assert np.all(timings.t_dw > 0) and not timings.estimated.any() and timings.metadata["coverage"] > 0.9


def test_a_trace_without_ops_is_estimated_and_marked(step):
    empty = Trace(np.array([[0.0, 8e6], [8e6, 16e6]]), (), [])
    timings = timings_from_trace(step, empty, 8.0)
    assert timings.estimated.all() and timings.metadata["coverage"] == 0
    assert timings.full_ms == pytest.approx(8.0) and np.all(timings.t_dw > 0)


def test_a_tensor_without_events_gets_an_estimate_and_is_marked(step, trace):
    kernel = tensor_names(step.objective.model).index("inner/kernel")
    operations = step.graph.get_operations()
    names, charges = attribute(operations, step.loss, step.gradients, step.handles)
    its_work = np.array([c.kind != FORWARD and c.members == 1 << kernel for c in charges])
    charged = charge_to(trace.ops, names)
    timings = timings_from_trace(step, without(trace, (charged >= 0) & its_work[charged]), 8.0)
    assert [n for n, e in zip(timings.names, timings.estimated) if e] == ["inner/kernel"]
    assert timings.t_dw[kernel] > 0


def test_a_renewed_profile_keeps_what_a_run_does_not_measure(step, trace):
    n = len(step.variables)
    names = tensor_names(step.objective.model)
    old = TensorTimings.from_chain(names, 1.0, np.full(n, 20.0), np.full(n, 20.0))
    old = dataclasses.replace(
        old, frozen_saving=0.3, overlap=0.1, metadata={"model": "small", "coverage": 0.5}
    )
    new = renewed(old, step, trace, 8.0, at=120)
    assert (new.frozen_saving, new.overlap) == (0.3, 0.1)
    assert new.full_ms == pytest.approx(8.0) and new.names == old.names
    assert new.metadata["renewed_at_step"] == 120 and new.metadata["traced_steps"] == 3
    assert new.metadata["model"] == "small" and new.metadata["coverage"] > 0.8
    # The same graph: the same groups as a profile made offline.
    offline = timings_from_trace(step, trace, 8.0)
    assert [members for members, _ in new.dy.sets()] == [members for members, _ in offline.dy.sets()]
