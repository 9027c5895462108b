"""From the trace of a full training step to the time of every tensor's work."""

import re
from typing import Any, Callable, Dict, Iterable, List, Sequence, Tuple

import numpy as np

from elastictrainer.profiler.attribution import (
    BACKWARD,
    FORWARD,
    NEVER,
    UPDATE,
    Bodies,
    Charge,
    Op,
    attribute,
    bodies_of,
)
from elastictrainer.profiler.cost_groups import CostGroups, Json, Numbers
from elastictrainer.profiler.profile import Profile
from elastictrainer.profiler.xplane import Trace, charge_to, wall_shares
from elastictrainer.steps.compiled_step import CompiledStep
from elastictrainer.steps.keras_compat.variables import name_of

_LOWERED = re.compile(r"/(body|cond)/_\d+/")  # TensorFlow takes a loop apart into ops, and numbers its body


def profile_from_trace(step: CompiledStep, trace: Trace, step_ms: float) -> Profile:
    """Charge the traced ops of some runs of a full, traced `step` to groups, on the scale of `step_ms`."""
    assert step.graph is not None, "trace the step first"
    n = len(step.variables)
    operations = step.graph.get_operations()
    names, charges = attribute(operations, step.loss, step.gradients, step.handles)
    flops = sums((c, count) for c, count in zip(charges, flops_of(operations)) if c.kind != NEVER)
    by_charge, always_ms, metadata = _times(step, trace, names, charges)
    estimated = np.full(n, not by_charge)
    if not by_charge:  # no op of the trace is known: share the step out by FLOPs
        by_charge, always_ms = {charge: max(count, 1.0) for charge, count in flops.items()}, 0.0
    # The groups' medians do not add up to the step's median, and tracing costs a little: one factor for all.
    scale = step_ms / (sum(by_charge.values()) + always_ms)
    by_charge = {charge: ms * scale for charge, ms in by_charge.items()}

    # A group of one tensor is its dW work (or its update); a group of several is dy work that they share.
    dw, update = _of_single_tensors(by_charge, BACKWARD, n), _of_single_tensors(by_charge, UPDATE, n)
    backward = [(c.members, ms) for c, ms in by_charge.items() if c.kind in (BACKWARD, UPDATE)]
    shared = sums((members, ms) for members, ms in backward if members & (members - 1))  # more than one bit
    # What nothing needs has time where graph optimisation gave its name to something that runs.
    forward = sums((c.members, ms) for c, ms in by_charge.items() if c.kind in (FORWARD, NEVER))
    # Time of no known op, and around the ops, is paid whatever trains: that of the empty set.
    forward[0] = forward.get(0, 0.0) + always_ms * scale
    connected = np.array([g is not None for g in step.gradients])
    # A time of zero would make a tensor free, and the selector would always take it.
    timeless = connected & (dw + update <= 0)
    if timeless.any():
        dw[timeless] = _estimated_dw(step, flops, by_charge)[timeless]
        estimated |= timeless
    counted = sums((0 if c.kind == FORWARD else c.members, count) for c, count in flops.items())
    return Profile(
        names=tuple(name_of(v) for v in step.variables),
        shapes=tuple(tuple(int(d) for d in v.shape) for v in step.variables),
        dw=CostGroups.singletons(dw),
        dy=CostGroups.from_bits(n, shared),
        forward=CostGroups.from_bits(n, forward),
        t_update=update,
        connected=connected,
        estimated=estimated,
        flops=CostGroups.from_bits(n, counted),
        metadata={"step_ms": step_ms, **metadata},
    )


def _times(
    step: CompiledStep, trace: Trace, names: List[str], charges: List[Charge]
) -> Tuple[Dict[Charge, float], float, Json]:
    """Add up the traced time by `charges`, those of the graph's ops called `names`; medians over the steps.

    Returns the ms of the graph's ops by charge; those of other ops, and of the step before its first op and
    after its last one; and entries of the profile's metadata.
    """
    # An op's events are charged by its name. Called functions first: their inner ops are no ops of the graph.
    bodies, parts = bodies_of(step.graph, charges, step.gradients)
    trace = charge_calls(trace, names, bodies)
    shares, outside = wall_shares(trace)
    target = charge_to(trace.ops, [*names, *parts])
    charges = [*charges, *parts.values()]
    known = target >= 0

    # Sum by op in each step first, then by group: the median of a group's time, not the sum of its ops'
    # medians.
    per_step = sums((charges[target[op]], shares[:, op]) for op in np.flatnonzero(known))
    by_charge = {charge: float(np.median(times)) for charge, times in per_step.items()}
    lost_ms = float(np.median(shares[:, ~known].sum(axis=1)))
    busy_ms = float(np.median(shares.sum(axis=1)))
    lost = {trace.ops[op]: float(np.median(shares[:, op])) for op in np.flatnonzero(~known)}
    most_lost = sorted(lost.items(), key=lambda item: -item[1])[:10]
    metadata = {
        "traced_step_ms": float(np.median(shares.sum(axis=1) + outside)),
        "coverage": 1 - lost_ms / busy_ms if by_charge and busy_ms else 0.0,
        "unattributed": [{"op": op, "ms": ms} for op, ms in most_lost],
    }
    return by_charge, lost_ms + float(np.median(outside)), metadata


def sums(amounts: Iterable[Tuple[Any, Any]]) -> Dict[Any, Any]:
    """Add up amounts by their keys."""
    found: Dict[Any, Any] = {}
    for key, amount in amounts:
        found[key] = found.get(key, 0.0) + amount
    return found


def _of_single_tensors(by_charge: Dict[Charge, float], kind: str, n: int) -> np.ndarray:
    return np.array([by_charge.get(Charge(kind, 1 << i), 0.0) for i in range(n)])


def _estimated_dw(
    step: CompiledStep, flops: Dict[Charge, float], by_charge: Dict[Charge, float]
) -> np.ndarray:
    """Estimate (N,) ms for each tensor's dW work from its FLOPs, at the backward pass' measured rate."""
    # An update reads and adds each element.
    count = np.array([2.0 * np.prod(v.shape) for v in step.variables])
    count += _of_single_tensors(flops, BACKWARD, len(count))
    backward_flops, backward_ms = (
        sum(amount for charge, amount in amounts.items() if charge.kind == BACKWARD)
        for amounts in (flops, by_charge)
    )
    rate = backward_ms / backward_flops if backward_flops else sum(by_charge.values()) / count.sum()
    return np.asarray(count * rate)


def charge_calls(trace: Trace, known: Sequence[str], bodies: Bodies) -> Trace:
    """Charge every event inside a called function to the calling op, or to a part of it; returns the trace.

    The events of a step whose name is in several functions are divided evenly, in the order in which the
    functions are called: exact where these run one after the other, with loops of the same length. Events of
    the `known` names, the graph's own ops, stay. `bodies` are those of `bodies_of`.
    """
    places = list(dict.fromkeys(place for body in bodies.values() for place in body.values()))
    op_of = {place: len(trace.ops) + k for k, place in enumerate(places)}
    lines = [line._replace(op=line.op.copy()) for line in trace.lines]
    for k, owners in _callers(trace.ops, known, bodies).items():
        events = sorted(
            (line.start[i], number, i)
            for number, line in enumerate(trace.lines)
            for i in np.flatnonzero(line.op == k)
        )
        for step_start, step_end in trace.steps:
            of_step = [event for event in events if step_start <= event[0] < step_end]
            for rank, (_, number, i) in enumerate(of_step):
                lines[number].op[i] = op_of[owners[rank * len(owners) // len(of_step)]]
    return Trace(trace.steps, (*trace.ops, *places), lines)


def _callers(traced: Sequence[str], known: Sequence[str], bodies: Bodies) -> Dict[int, List[str]]:
    """Return, for each traced op inside functions, what its events may be charged to, in order of calls."""
    lost = np.flatnonzero(charge_to(traced, known) < 0)
    # Events of no op of the graph are inside functions; a loop's body is numbered when it is taken apart.
    names = [_LOWERED.sub(r"/\1/", traced[k]) for k in lost]
    matches: List[List[Tuple[int, str]]] = [[] for _ in lost]  # length of the matching name; its charge
    for body in bodies.values():
        inside = list(body)
        for found, at in zip(matches, charge_to(names, inside)):
            if at >= 0:
                found.append((len(inside[at]), body[inside[at]]))
    owners = {}
    for k, found in zip(lost.tolist(), matches):
        # A body that has the op itself is a better match than one that has the loop around it.
        if found:
            longest, _ = max(found)
            owners[k] = [place for length, place in found if length == longest]
    return owners


def flops_of(operations: Sequence[Op]) -> Numbers:
    """Return (ops,) floating point operations; 0 where there are no statistics for an op's type.

    TensorFlow counts a multiplication and an addition as two. Its statistics lack the gradients of depthwise
    convolutions, which cost what the convolution costs and are counted here, and batch normalisation, which
    is not.
    """
    from tensorflow.python.framework import ops
    from tensorflow.python.profiler.internal import flops_registry  # noqa: F401  (registers the statistics)

    counts = np.zeros(len(operations))
    for k, op in enumerate(operations):
        try:
            if op.type in _LACKING:
                counts[k] = _LACKING[op.type](op)
            else:
                counts[k] = ops.get_stats_for_node_def(op.graph, op.node_def, "flops").value or 0
        except (ValueError, AssertionError, TypeError):  # a shape that is only known at run time
            counts[k] = 0
    return counts


def _depthwise(filter_shape: Any, gradient_shape: Any) -> float:
    """Count two operations for each element of the filter, at each place and channel of the output."""
    height, width = filter_shape.as_list()[:2]
    return 2.0 * height * width * gradient_shape.num_elements()


_LACKING: Dict[str, Callable[[Op], float]] = {
    "DepthwiseConv2dNativeBackpropInput": lambda op: _depthwise(op.inputs[1].shape, op.inputs[2].shape),
    "DepthwiseConv2dNativeBackpropFilter": lambda op: _depthwise(op.outputs[0].shape, op.inputs[2].shape),
}
